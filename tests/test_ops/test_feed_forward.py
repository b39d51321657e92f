import pytest
import torch
from helpers import assert_close, kept_bytes
from op_checks import assert_finite, assert_same, learned, with_gradients
from torch._dynamo.testing import CompileCounter

from mmbixt.ops import FeedForwardWeights, dispatch, feed_forward, use_ops

SHAPES = {  # tokens (...), C, hidden
    'XCiT-T12/16 at 512 px': ((1, 1024), 192, 768),
    'BiFormer-T, stage 2 at 256 px': ((1, 32, 32), 128, 384),
    'latents of BiXT': ((2, 64), 192, 768),
    'one token': ((1, 1), 8, 16),
    'odd sizes, batch 3': ((3, 37), 5, 11),
}


@pytest.fixture(params=['all at once', 'a few tokens at a time'])
def policy(request, monkeypatch):
    if request.param == 'a few tokens at a time':
        monkeypatch.setattr(dispatch, 'SCORES', 2**13)


def make_inputs(shape, dtype=torch.float32, with_scale=True):
    tokens, channels, hidden = shape
    sizes = [
        *((*tokens, channels), (channels,), (channels,)),
        *((hidden, channels), (hidden,), (channels, hidden), (channels,), (channels,)),
    ]
    *inputs, scale = learned(*sizes, dtype=dtype)
    return [*inputs[:3], 1e-6, *inputs[3:], scale if with_scale else None]


def compute(x, *weights, residual=True):
    return feed_forward(x, FeedForwardWeights(*weights), residual)


def run(path, inputs, residual=True):
    with use_ops(path):
        return with_gradients(lambda *x: compute(*x, residual=residual), inputs)


@pytest.mark.parametrize(('with_scale', 'residual'), [(True, True), (False, False)])
@pytest.mark.parametrize('shape', SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_fast_path_equals_reference(policy, shape, dtype, tolerance, with_scale, residual):
    inputs = make_inputs(shape, dtype, with_scale)
    assert_same(run('cpu', inputs, residual), run('reference', inputs, residual), tolerance)


def test_large_values_stay_finite(policy):
    inputs = make_inputs(((1, 37), 8, 12))
    with torch.no_grad():
        for x in (inputs[0], inputs[4], inputs[6]):
            x.mul_(1e4)
    assert_finite(run('cpu', inputs))


def test_no_tokens_at_all(policy):
    (out,), gradients = run('auto', make_inputs(((2, 0), 8, 12)))
    assert out.shape == (2, 0, 8)
    assert all((x == 0).all() for x in gradients)


def test_gradcheck(policy):
    x, weight, bias, eps, *weights = make_inputs(((2, 3), 4, 6), torch.float64)
    given = (x, weight, bias, *weights)
    assert torch.autograd.gradcheck(lambda x, n, b, *w: compute(x, n, b, eps, *w), given)


@pytest.mark.parametrize('frozen', ['tokens', 'weights'])
def test_what_is_frozen_gets_no_gradient(frozen):
    inputs = make_inputs(((1, 9), 4, 6))
    of_all = run('cpu', inputs)
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    left = [x.requires_grad_((i == 0) == (frozen == 'weights')) for i, x in enumerate(tensors)]
    expected = [g for x, g in zip(left, of_all[1], strict=True) if x.requires_grad]
    assert_same(run('cpu', inputs), (of_all[0], expected), 0)


def test_the_hidden_values_are_kept_once(policy):
    inputs = make_inputs(((1, 512), 32, 128), with_scale=False)
    kept = kept_bytes(lambda: compute(*inputs))
    weights = sum(x.nbytes for x in inputs[4:] if x is not None)
    hidden, tokens = 4 * 512 * 128, 4 * 512 * 32
    assert kept < hidden + 1.5 * tokens + weights


def test_without_gradients_the_hidden_values_are_those_of_a_few_tokens(monkeypatch):
    monkeypatch.setattr(dispatch, 'SCORES', 2**10)
    inputs = make_inputs(((1, 512), 32, 128))
    with torch.no_grad(), torch.profiler.profile(profile_memory=True) as profiler:
        compute(*inputs)
    largest = max(event.cpu_memory_usage for event in profiler.events())
    assert largest < 4 * 512 * 128


def test_tokens_that_are_no_plain_memory_take_the_reference():
    tokens, *rest = make_inputs(((2, 9), 4, 6))
    transposed = tokens.detach().transpose(0, 1).contiguous().transpose(0, 1)
    assert_close(compute(transposed, *rest), compute(tokens, *rest))


def test_autocast_is_left_to_the_reference():
    inputs = make_inputs(((1, 16), 32, 64))
    exact = compute(*inputs)
    with torch.autocast('cpu', torch.bfloat16):
        half = compute(*inputs)
        with use_ops('reference'):
            assert torch.equal(half, compute(*inputs))
    assert_close(half.float(), exact, 5e-2)


def test_the_number_of_tokens_is_no_constant_to_a_compiler(fresh_compiler, monkeypatch):
    monkeypatch.setattr(dispatch, 'SCORES', 2**8)  # several pieces of tokens
    weights = make_inputs(((2, 9), 8, 12))[1:]
    counter = CompileCounter()
    compiled = torch.compile(compute, fullgraph=True, backend=counter, dynamic=True)
    for tokens in (9, 40, 77):
        (x,) = learned((2, tokens, 8))
        found, expected = (with_gradients(f, [x, *weights]) for f in (compiled, compute))
        assert_same(found, expected, 1e-6)
    assert counter.frame_count == 1
