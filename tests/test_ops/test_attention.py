"""The attentions of BiXT, BiFormer and BiSA, compared with simple code for their definitions."""

import numpy as np
import pytest
import torch
from helpers import assert_close
from op_checks import CASES, inverse
from reference import misa_naive
from torch.nn.functional import pad

from mmbixt.ops import bidirectional_attention, route, self_attention, use_ops
from mmbixt.ops.bidirectional_attention import bidirectional_attention_maps
from mmbixt.ops.inverse_attention import bidirectional_self_attention_maps
from mmbixt.ops.window_attention import Windows


def test_bidirectional_attention_equals_its_formula():
    sizes = [(1, 1, 3, 4), (1, 1, 5, 4)] * 2
    r_latents, r_tokens, v_latents, v_tokens = (torch.randn(s, dtype=torch.float64) for s in sizes)
    similarity = torch.exp(0.5 * r_latents[0, 0] @ r_tokens[0, 0].T)
    over_tokens, over_latents = bidirectional_attention_maps(r_latents, r_tokens, 0.5)
    for path in ('reference', 'portable'):
        with use_ops(path):
            latents, tokens = bidirectional_attention(
                r_latents, r_tokens, v_latents, v_tokens, scale=0.5
            )
            nothing, same = bidirectional_attention(r_latents, r_tokens, v_latents, None, 0.5)
        for i in range(3):
            expected = similarity[i] @ v_tokens[0, 0] / similarity[i].sum()
            assert_close(latents[0, 0, i], expected, 1e-12)
        for j in range(5):
            expected = similarity[:, j] @ v_latents[0, 0] / similarity[:, j].sum()
            assert_close(tokens[0, 0, j], expected, 1e-12)
        assert nothing is None
        assert torch.equal(tokens, same)
        assert_close(over_tokens @ v_tokens, latents, 1e-12)
        assert_close(over_latents.transpose(-2, -1) @ v_latents, tokens, 1e-12)


@pytest.mark.parametrize('path', ['portable', 'reference'])
@pytest.mark.parametrize('shape', CASES[inverse].values(), ids=CASES[inverse])
def test_inverse_attention_equals_algorithm_1(shape, path):
    attend, inputs = inverse(*shape, dtype=torch.float64)
    q, k, v, q_hat, v_hat, G, *bias = inputs = [x.detach() for x in inputs]
    scale = shape[2] ** -0.5
    with use_ops(path):
        plain, inverted = attend(*inputs)
        alone = self_attention(q, k, v, scale, *bias)
    over_keys, over_queries = bidirectional_self_attention_maps(q, k, scale, *bias)
    assert_close(over_keys @ v, alone, 1e-12)
    assert_close(over_queries.sum(-2), torch.ones_like(over_queries[..., 0, :]), 1e-12)
    scores = sum(bias, q @ k.transpose(-2, -1) * scale)
    groups = (x.flatten(0, -4).numpy() for x in (scores, v, q_hat, v_hat))
    outputs = (x.transpose(-3, -2).flatten(-2).flatten(0, -3) for x in (plain, inverted, alone))
    for m, v_, q_hat_, v_hat_, *ours in zip(*groups, *outputs, strict=True):
        msa = misa_naive.msa(m, v_)
        misa = misa_naive.misa_naive(m, q_hat_, v_hat_, G.numpy())
        for actual, expected in zip(ours, (msa, misa, msa), strict=True):
            np.testing.assert_allclose(actual.numpy(), expected, rtol=0, atol=1e-10)


def test_routes_go_to_the_regions_of_the_most_similar_means():
    queries, keys = torch.zeros(1, 3, 2, 1, 3), torch.zeros(1, 3, 2, 1, 3)
    queries[0, :, :, 0] = torch.eye(3)[:, None]
    keys[0, :, 0, 0] = 2 * torch.tensor([[0.0, 3, 1], [2.0, 1, 0], [1.0, 2, 3]])
    assert route(queries, keys, 2).tolist() == [[[1, 2], [0, 2], [2, 0]]]
    valid = torch.tensor([[True, True], [False, False], [True, False]])
    # the second region has no valid token, the third only one
    assert route(queries, keys, 2, valid)[0, [0, 2]].tolist() == [[2, 0], [2, 0]]
    assert route(queries, keys, 9, valid).shape == (1, 3, 3)


def test_routes_do_not_depend_on_autocast():
    x = torch.randn(1, 16, 4, 2, 8)
    with torch.autocast('cpu', torch.bfloat16):
        half = route(x, x.flip(1), 3)
    assert torch.equal(half, route(x, x.flip(1), 3))


SIZES = [(1, 14, 14, 7, 0), (1, 14, 14, 7, 3), (2, 10, 17, 7, 3), (3, 5, 2, 7, 3), (1, 1, 1, 4, 2)]


def cut_by_hand(x, fill, size, shift):
    """As in Swin Transformers: pad, roll, partition."""
    height, width = x.shape[1:3]
    inside = pad(torch.ones(x.shape[:3]), (0, -width % size, 0, -height % size))[..., None]
    x = pad(x, (0, 0, 0, -width % size, 0, -height % size))
    x = (x * inside + fill * (1 - inside)).roll((-shift, -shift), dims=(1, 2))
    x = x.unflatten(2, (-1, size)).unflatten(1, (-1, size)).transpose(2, 3)
    return x.flatten(3, 4).flatten(1, 2)


@pytest.mark.parametrize(('batch', 'height', 'width', 'size', 'shift'), SIZES)
def test_windows_are_cut_as_in_swin_and_joined(batch, height, width, size, shift):
    x = torch.randn(batch, height, width, 3, dtype=torch.float64, requires_grad=True)
    fill = torch.randn(3, dtype=torch.float64, requires_grad=True)
    layout = Windows.of(x, size, shift)
    cut, expected = layout.cut(x, fill), cut_by_hand(x, fill, size, shift)
    assert torch.equal(cut, expected)
    weight = torch.randn_like(cut)
    ours, by_hand = (
        torch.autograd.grad((part * weight).sum(), (x, fill)) for part in (cut, expected)
    )
    for actual, wanted in zip(ours, by_hand, strict=True):
        torch.testing.assert_close(actual, wanted)
    assert torch.equal(layout.cut(x), cut_by_hand(x, torch.zeros(3), size, shift))
    assert torch.autograd.gradcheck(layout.cut, x)
    assert torch.equal(layout.join(cut), x)
    assert torch.autograd.gradcheck(layout.join, cut.detach().requires_grad_())
