import numpy as np
import pytest
import torch
from helpers import assert_close
from op_checks import assert_finite, assert_same, learned, with_gradients
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
    return learned(*sizes, dtype=dtype, factor=factor)


def attend(q, k, v, q_hat, v_hat, G, bias=None):
    return bidirectional_self_attention(q, k, v, q_hat, v_hat, G, q.shape[-1] ** -0.5, bias)


def attend_alone(q, k, v, *rest):
    return self_attention(q, k, v, q.shape[-1] ** -0.5, rest[3] if len(rest) > 3 else None)


def run(path, inputs, function=attend):
    with use_ops(path):
        return with_gradients(function, inputs)


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


@pytest.mark.parametrize('function', [attend, attend_alone])
@pytest.mark.parametrize('shape', SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_fast_path_equals_reference(shape, dtype, tolerance, function):
    inputs = make_inputs(shape, dtype)
    expected = run('reference', inputs, function)
    assert_same(run('auto', inputs, function), expected, tolerance)
    if function is attend:
        assert_same(run('portable', inputs), expected, tolerance)
    with torch.no_grad(), use_ops('portable'):  # whose gradients do not reach the bias
        alone = attend_alone(*inputs)
    assert_close(alone, run('reference', inputs, attend_alone)[0][0], tolerance)


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
    inputs = learned((3, 4, 5), (3, 4, 6), (5, 6, 7))
    monkeypatch.setattr(module, '_CPU_BUFFER', rows * 30)
    reference = with_gradients(lambda *x: torch.einsum('nia,nib,abc->nic', *x), inputs)
    assert_same(with_gradients(bilinear, inputs), reference, 1e-5)


def test_keeps_no_outer_products_for_the_backward_pass():
    left, right, weight = learned((9, 8), (9, 8), (8, 8, 8))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()), lambda t: t):
        bilinear(left, right, weight)
    assert sorted(kept) == [72, 72, 512]


@pytest.mark.parametrize('path', ['portable', 'reference'])
def test_large_logits_and_masks_stay_finite(path):
    inputs = make_inputs(SHAPES['Swin-T, shifted windows'], torch.float32, factor=30.0)
    assert_finite(run(path, inputs))


def test_maps_are_what_the_op_attends_with():
    q, k, v, *_, bias = make_inputs(SHAPES['one bias for all windows'], torch.float64)
    over_keys, over_queries = bidirectional_self_attention_maps(q, k, 8**-0.5, bias)
    assert_close(over_keys @ v, attend_alone(q, k, v, None, None, None, bias), 1e-12)
    assert_close(over_queries.sum(-2), torch.ones(5, 2, 16, dtype=torch.float64), 1e-12)
