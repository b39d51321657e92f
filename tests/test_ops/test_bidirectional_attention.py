import pytest
import torch
from helpers import assert_close
from op_checks import assert_finite, assert_same, learned, with_gradients

from mmbixt.ops import bidirectional_attention, use_ops
from mmbixt.ops.bidirectional_attention import bidirectional_attention_maps

SHAPES = {  # batch of the tokens, batch of the latents, h, M, N, d
    'BiXT-Ti/16 at 512 px': (1, 1, 6, 64, 1024, 32),
    'first layer: latents shared by the batch': (3, 1, 6, 64, 50, 32),
    'one token': (2, 2, 2, 8, 1, 16),
    'fewer tokens than channels': (1, 1, 6, 64, 4, 32),
    'latents not a multiple of 8': (3, 3, 2, 13, 35, 16),
    'one latent': (1, 1, 1, 1, 9, 8),
}


def make_inputs(shape, dtype, factor=1.0):
    batch, shared, h, latents, tokens, d = shape
    sizes = [(shared, h, latents, d), (batch, h, tokens, d)] * 2
    return learned(*sizes, dtype=dtype, factor=factor)


def run(path, inputs, scale=0.25):
    with use_ops(path):
        return with_gradients(lambda *x: bidirectional_attention(*x, scale), inputs)


@pytest.mark.parametrize('shape', SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_fast_path_equals_reference_forward_and_backward(shape, dtype, tolerance):
    inputs = make_inputs(shape, dtype)
    assert_same(run('portable', inputs), run('reference', inputs), tolerance)


def test_reference_is_the_formula():
    r_latents, r_tokens, v_latents, v_tokens = make_inputs((1, 1, 1, 3, 5, 4), torch.float64)
    with use_ops('reference'):
        latents, tokens = bidirectional_attention(r_latents, r_tokens, v_latents, v_tokens, 0.5)
    similarity = torch.exp(0.5 * r_latents[0, 0] @ r_tokens[0, 0].T)
    for i in range(3):
        expected = similarity[i] @ v_tokens[0, 0] / similarity[i].sum()
        assert_close(latents[0, 0, i], expected, 1e-12)
    for j in range(5):
        expected = similarity[:, j] @ v_latents[0, 0] / similarity[:, j].sum()
        assert_close(tokens[0, 0, j], expected, 1e-12)


@pytest.mark.parametrize('path', ['portable', 'reference'])
def test_large_logits_and_updates_of_the_tokens_alone(path):
    inputs = make_inputs((2, 2, 2, 8, 20, 16), torch.float32, factor=100.0)
    both = run(path, inputs)
    assert_finite(both)
    with use_ops(path):
        latents, tokens = bidirectional_attention(*inputs[:3], None, scale=0.25)
    assert latents is None
    assert torch.equal(tokens, both[0][1])


def test_gradcheck():
    inputs = make_inputs((2, 1, 1, 3, 4, 2), torch.float64)
    with use_ops('portable'):
        assert torch.autograd.gradcheck(lambda *x: bidirectional_attention(*x, 0.7), inputs)


def test_maps_are_what_the_op_attends_with():
    r_latents, r_tokens, v_latents, v_tokens = make_inputs((2, 2, 2, 8, 20, 16), torch.float64)
    over_tokens, over_latents = bidirectional_attention_maps(r_latents, r_tokens, 0.25)
    latents, tokens = bidirectional_attention(r_latents, r_tokens, v_latents, v_tokens, 0.25)
    assert_close(over_tokens @ v_tokens, latents, 1e-12)
    assert_close(over_latents.transpose(-2, -1) @ v_latents, tokens, 1e-12)
