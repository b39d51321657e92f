"""Inverse attention and routes, compared with simple code for their definitions."""

import numpy as np
import pytest
import torch
from helpers import assert_close
from op_checks import CASES, inverse
from reference import misa_naive

from mmbixt.ops import route, self_attention, use_ops
from mmbixt.ops.inverse_attention import bidirectional_self_attention_maps


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
