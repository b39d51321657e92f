import pytest
import torch
from helpers import assert_close, kept_bytes

from mmbixt.ops import FeedForwardWeights, dispatch, feed_forward, use_ops
from mmbixt.ops.cpu import feed_forward as operators

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


def make_inputs(shape, dtype, with_scale):
    tokens, channels, hidden = shape
    sizes = [
        *((*tokens, channels), (channels,), (channels,)),
        *((hidden, channels), (hidden,), (channels, hidden), (channels,)),
    ]
    inputs = [torch.randn(size, dtype=dtype).requires_grad_() for size in sizes]
    scale = torch.randn(channels, dtype=dtype).requires_grad_() if with_scale else None
    return [*inputs[:3], 1e-6, *inputs[3:], scale]


def compute(x, *weights, residual=True):
    return feed_forward(x, FeedForwardWeights(*weights), residual)


def run(path, inputs, residual):
    with use_ops(path):
        out = compute(*inputs, residual=residual)
    weight = torch.cos(torch.arange(out.numel(), dtype=out.dtype)).view_as(out)
    given = [x for x in inputs if isinstance(x, torch.Tensor)]
    return [out, *torch.autograd.grad((out * weight).sum(), given)]


@pytest.mark.parametrize('residual', [True, False])
@pytest.mark.parametrize('with_scale', [True, False])
@pytest.mark.parametrize('shape', SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_fast_path_equals_reference(policy, shape, dtype, tolerance, with_scale, residual):
    inputs = make_inputs(shape, dtype, with_scale)
    fast, reference = (run(path, inputs, residual) for path in ('cpu', 'reference'))
    scale = max(float(x.abs().max()) for x in reference[1:])
    assert_close(fast[0], reference[0], tolerance)
    for actual, expected in zip(fast[1:], reference[1:], strict=True):
        assert (actual - expected).abs().max() <= tolerance * scale


def test_large_values_stay_finite(policy):
    inputs = make_inputs(((1, 37), 8, 12), torch.float32, True)
    with torch.no_grad():
        for x in (inputs[0], inputs[4], inputs[6]):
            x.mul_(1e4)
    assert all(x.isfinite().all() for x in run('cpu', inputs, True))


def test_no_tokens_at_all(policy):
    inputs = make_inputs(((2, 0), 8, 12), torch.float32, True)
    out, *gradients = run('auto', inputs, True)
    assert out.shape == (2, 0, 8)
    assert all((x == 0).all() for x in gradients)


def test_gradcheck(policy):
    tokens, norm, bias, eps, *weights = make_inputs(((2, 3), 4, 6), torch.float64, True)
    assert torch.autograd.gradcheck(
        lambda x, n, b, *w: compute(x, n, b, eps, *w), (tokens, norm, bias, *weights)
    )


@pytest.mark.parametrize('frozen', ['tokens', 'weights'])
def test_what_is_frozen_gets_no_gradient(frozen):
    inputs = make_inputs(((1, 9), 4, 6), torch.float32, True)
    for i, x in enumerate(inputs):
        if isinstance(x, torch.Tensor) and (i == 0) == (frozen == 'tokens'):
            x.requires_grad_(False)
    compute(*inputs).sum().backward()
    for x in inputs:
        if isinstance(x, torch.Tensor):
            assert (x.grad is None) == (not x.requires_grad)


def test_the_hidden_values_are_kept_once():
    inputs = make_inputs(((1, 512), 32, 128), torch.float32, False)
    kept = kept_bytes(lambda: compute(*inputs))
    weights = sum(x.nbytes for x in inputs[4:] if x is not None)
    hidden, tokens = 4 * 512 * 128, 4 * 512 * 32
    assert kept < hidden + 1.5 * tokens + weights


def test_tokens_that_are_no_plain_memory_take_the_reference():
    tokens, *rest = make_inputs(((2, 9), 4, 6), torch.float32, True)
    transposed = tokens.detach().transpose(0, 1).contiguous().transpose(0, 1)
    assert_close(compute(transposed, *rest), compute(tokens, *rest))


def test_autocast_is_left_to_the_reference():
    inputs = make_inputs(((1, 16), 32, 64), torch.float32, True)
    exact = compute(*inputs)
    with torch.autocast('cpu', torch.bfloat16):
        half = compute(*inputs)
        with use_ops('reference'):
            assert torch.equal(half, compute(*inputs))
    assert_close(half.float(), exact, 5e-2)


def test_no_graph_breaks():
    inputs = make_inputs(((2, 9), 8, 12), torch.float32, True)
    compiled = torch.compile(compute, fullgraph=True, backend='eager')
    assert_close(compiled(*inputs), compute(*inputs), 1e-6)


def test_without_gradients_the_hidden_values_are_those_of_a_few_tokens(monkeypatch):
    monkeypatch.setattr(dispatch, 'SCORES', 2**10)
    inputs = make_inputs(((1, 512), 32, 128), torch.float32, False)
    with torch.no_grad(), torch.profiler.profile(profile_memory=True) as profiler:
        compute(*inputs)
    largest = max(event.cpu_memory_usage for event in profiler.events())
    assert largest < 4 * 512 * 128


def test_the_operators_are_ones_that_compilers_can_trust():
    *inputs, _ = make_inputs(((9,), 4, 6), torch.float32, False)
    inputs = [x.detach() if isinstance(x, torch.Tensor) else x for x in inputs]
    for keep in (False, True):
        torch.library.opcheck(operators.feed_forward, (*inputs, True, keep, 4))
    out, *kept = operators.feed_forward(*inputs, True, True, 4)
    x, norm_weight, norm_bias, eps, fc1_weight, _, fc2_weight, _ = inputs
    given = (torch.randn_like(out), x, norm_weight, norm_bias, eps, fc1_weight, fc2_weight)
    torch.library.opcheck(operators.feed_forward_backward, (*given, *kept, True, 4))


def test_the_number_of_tokens_is_no_constant_to_a_compiler(fresh_compiler):
    *weights, scale = make_inputs(((2, 9), 8, 12), torch.float32, True)[1:]
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(compute, fullgraph=True, backend=counter, dynamic=True)
    for tokens in (9, 40, 77):
        x = torch.randn(2, tokens, 8, requires_grad=True)
        assert_close(compiled(x, *weights, scale), compute(x, *weights, scale), 1e-6)
    assert counter.frame_count == 1


def test_second_derivatives_are_refused():
    inputs = make_inputs(((1, 9), 4, 6), torch.float32, True)
    (grad,) = torch.autograd.grad(compute(*inputs).square().sum(), inputs[0], create_graph=True)
    with pytest.raises(RuntimeError, match='feed_forward_backward'):
        torch.autograd.grad(grad.sum(), inputs[0])
