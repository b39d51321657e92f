import numpy as np
import pytest
import torch
from helpers import assert_close
from reference import misa_naive

from mmbixt.ops import bidirectional_self_attention, self_attention, use_ops
from mmbixt.ops.inverse_attention import bidirectional_self_attention_maps
from mmbixt.ops.inverse_attention import bilinear as module
from mmbixt.ops.inverse_attention.bilinear import bilinear

SHAPES = {  # leading dimensions and h, N, d, s; leading dimensions and h of the bias, or None
    'Swin-T, shifted windows': ((2, 4, 3), 49, 32, 32, (4, 3)),
    'one bias for all windows': ((5, 2), 16, 8, 8, (2,)),
    'no bias': ((2, 3), 25, 16, 16, None),
    'one token': ((2, 1), 1, 8, 8, (1,)),
    'one image, one head': ((1, 1), 9, 4, 4, (1, 1)),
    'narrow hypernetwork': ((3, 2), 12, 16, 5, (1, 2)),
}


def make_inputs(shape, dtype, factor=1.0):
    lead, n, d, s, bias = shape
    sizes = [(*lead, n, d)] * 3 + [(*lead, n, s)] * 2 + [(s, s, d)]
    if bias is not None:
        sizes.append((*bias, n, n))
    return [(factor * torch.randn(size, dtype=dtype)).requires_grad_() for size in sizes]


def attend(q, k, v, q_hat, v_hat, G, bias=None):
    return bidirectional_self_attention(q, k, v, q_hat, v_hat, G, q.shape[-1] ** -0.5, bias)


def attend_alone(q, k, v, *rest):
    return self_attention(q, k, v, q.shape[-1] ** -0.5, rest[3] if len(rest) > 3 else None)


def run(path, inputs):
    with use_ops(path):
        outputs = attend(*inputs)
    weights = [torch.cos(torch.arange(o.numel(), dtype=o.dtype)).view_as(o) for o in outputs]
    loss = sum((out * weight).sum() for out, weight in zip(outputs, weights, strict=True))
    return [*outputs, *torch.autograd.grad(loss, inputs)]


@pytest.mark.parametrize('path', ['portable', 'reference'])
@pytest.mark.parametrize('shape', SHAPES.values(), ids=SHAPES)
def test_is_algorithm_1_with_a_tensor_per_pair(shape, path):
    inputs = [x.detach() for x in make_inputs(shape, torch.float64)]
    with use_ops(path):
        plain, inverse = attend(*inputs)
        alone = attend_alone(*inputs)
    scores = inputs[0] @ inputs[1].transpose(-2, -1) * shape[2] ** -0.5
    scores = scores + inputs[6] if shape[4] else scores
    groups = (x.flatten(0, -4).numpy() for x in (scores, inputs[2], inputs[3], inputs[4]))
    outputs = (x.transpose(-3, -2).flatten(-2).flatten(0, -3) for x in (plain, inverse, alone))
    for m, v, q_hat, v_hat, *ours in zip(*groups, *outputs, strict=True):
        msa = misa_naive.msa(m, v)
        misa = misa_naive.misa_naive(m, q_hat, v_hat, inputs[5].numpy())
        for actual, expected in zip(ours, (msa, misa, msa), strict=True):
            np.testing.assert_allclose(actual.numpy(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize('shape', SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_fast_path_equals_reference_forward_and_backward(shape, dtype, tolerance):
    inputs = make_inputs(shape, dtype)
    for actual, expected in zip(run('portable', inputs), run('reference', inputs), strict=True):
        assert_close(actual, expected, tolerance)


@pytest.mark.parametrize('shape', SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize('training', [True, False])
def test_fast_self_attention_equals_reference(shape, training):
    inputs = make_inputs(shape, torch.float64)
    with torch.set_grad_enabled(training):
        for path in ('portable', 'auto'):
            with use_ops(path):
                actual = attend_alone(*inputs)
            with use_ops('reference'):
                assert_close(actual, attend_alone(*inputs), 1e-12)


def test_gradcheck_in_several_pieces(monkeypatch):
    monkeypatch.setattr(module, '_CPU_BUFFER', 20)  # five rows of 2 x 2
    inputs = make_inputs(((2, 2), 3, 3, 2, (2,)), torch.float64)
    for path in ('portable', 'reference'):
        with use_ops(path):
            assert torch.autograd.gradcheck(attend, inputs)
            q, k, v, *_, bias = inputs
            assert torch.autograd.gradcheck(
                lambda *x: self_attention(*x[:3], 0.7, x[3]), (q, k, v, bias)
            )


@pytest.mark.parametrize('rows', [1, 4, 5, 12])
def test_size_of_the_pieces_changes_nothing(monkeypatch, rows):
    inputs = [torch.randn(size).requires_grad_() for size in ((3, 4, 5), (3, 4, 6), (5, 6, 7))]
    expected = torch.einsum('nia,nib,abc->nic', *inputs)
    monkeypatch.setattr(module, '_CPU_BUFFER', rows * 30)
    actual = bilinear(*inputs)
    assert_close(actual, expected)
    grads = zip(
        torch.autograd.grad(actual.cos().sum(), inputs),
        torch.autograd.grad(expected.cos().sum(), inputs),
        strict=True,
    )
    for actual_grad, expected_grad in grads:
        assert_close(actual_grad, expected_grad)


def test_keeps_no_outer_products_for_the_backward_pass():
    left, right, weight = (torch.randn(s, requires_grad=True) for s in ((9, 8), (9, 8), (8, 8, 8)))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()), lambda t: t):
        bilinear(left, right, weight)
    assert sorted(kept) == [72, 72, 512]


@pytest.mark.parametrize('path', ['portable', 'reference'])
def test_large_logits_and_masks_stay_finite(path):
    inputs = make_inputs(SHAPES['Swin-T, shifted windows'], torch.float32, factor=30.0)
    assert all(torch.isfinite(x).all() for x in run(path, inputs))


@pytest.mark.parametrize('training', [True, False])
def test_bfloat16_stays_within_its_rounding(training):
    inputs = make_inputs(SHAPES['Swin-T, shifted windows'], torch.float32)
    half = [x.detach().bfloat16().requires_grad_(training) for x in inputs]
    for function in (attend, lambda *x: [attend_alone(*x)]):
        exact = function(*(x.detach().float() for x in half))
        for actual, expected in zip(function(*half), exact, strict=True):
            assert_close(actual.float(), expected, 3e-2)


def test_gradients_under_autocast():
    inputs = make_inputs(SHAPES['one bias for all windows'], torch.float32)
    exact = torch.autograd.grad(attend(*inputs)[1].square().sum(), inputs[3:6])
    with torch.autocast('cpu', torch.bfloat16):
        inverse = attend(*inputs)[1]
    rounded = torch.autograd.grad(inverse.float().square().sum(), inputs[3:6])
    for actual, expected in zip(rounded, exact, strict=True):
        assert actual.dtype == torch.float32
        assert_close(actual, expected, 5e-2)


def test_maps_are_what_the_op_attends_with():
    q, k, v, *_, bias = make_inputs(SHAPES['one bias for all windows'], torch.float64)
    over_keys, over_queries = bidirectional_self_attention_maps(q, k, 8**-0.5, bias)
    assert_close(over_keys @ v, attend_alone(q, k, v, None, None, None, bias), 1e-12)
    assert_close(over_queries.sum(-2), torch.ones(5, 2, 16, dtype=torch.float64), 1e-12)


@pytest.mark.parametrize('function', [attend, attend_alone])
def test_no_graph_breaks(function):
    inputs = make_inputs(SHAPES['Swin-T, shifted windows'], torch.float32)
    compiled = torch.compile(function, fullgraph=True, backend='eager')
    for actual, expected in zip(compiled(*inputs), function(*inputs), strict=True):
        assert_close(actual, expected, 1e-5)


def test_the_operator_is_one_that_compilers_can_trust():
    left, right, weight = (
        torch.randn(size).requires_grad_() for size in ((9, 3), (9, 4), (3, 4, 5))
    )
    torch.library.opcheck(module.bilinear_of_rows, (left, right, weight))
