from itertools import chain

import pytest
import torch
from op_checks import CASES, assert_same, on, xca

from mmbixt.ops import cross_covariance_attention, dispatch, use_ops
from mmbixt.ops.cross_covariance.portable import _with_tokens
from mmbixt.ops.cross_covariance.reference import CrossCovarianceWeights


def chosen(x):
    return dispatch.RULES['cross_covariance_attention'](x)[0]


TOKENS = {  # where the Gram matrix could lose digits
    'a mean of 10': lambda x: x + 10 * torch.randn(x.shape[-1], dtype=x.dtype),
    'a mean of 100, small variance': lambda x: 0.01 * x + 100,
    'a channel 50 times the others': lambda x: (
        x * torch.where(torch.arange(x.shape[-1]) == 3, 50, 1)
    ),
    'all tokens equal': lambda x: x[:, :1].expand_as(x).contiguous(),
    'few dimensions': lambda x: x * (torch.arange(x.shape[-1]) < 4) + 1e-3 * x,
}


@pytest.mark.parametrize('cancelled', [False, True], ids=['', 'bias against the mean'])
@pytest.mark.parametrize('kind', TOKENS)
def test_no_digits_are_lost(kind, cancelled):
    """In float32 the error of the fast path is not much larger than that of the reference."""
    inputs = [x.detach() for x in xca(1, 400, 64, 4, dtype=torch.float64)[1]]
    inputs[0] = TOKENS[kind](inputs[0])
    for i in (1, 2, 4):
        inputs[i] = 0.1 * inputs[i]
    if cancelled:  # queries and keys without their mean
        inputs[2] = 0.1 * inputs[2] - inputs[1] @ inputs[0].mean((0, 1))
    single = [x.float().requires_grad_() for x in inputs]
    doubles = [x.detach().double().requires_grad_() for x in single]
    exact = list(chain(*on('reference', cross_covariance_attention, doubles)))
    errors = {
        path: [
            float((a.double() - b).abs().max() / b.abs().max().clamp_min(1e-30))
            for a, b in zip(
                chain(*on(path, cross_covariance_attention, single)), exact, strict=True
            )
        ]
        for path in ('portable', 'reference')
    }
    assert chosen(single[0]) == 'portable'
    assert errors['portable'][0] <= max(20 * errors['reference'][0], 2e-5)
    # the gradients of the tokens, the weights, the projection
    for i in (1, 2, 5):
        assert errors['portable'][i] <= max(20 * errors['reference'][i], 1e-4)


def order_of_tokens(*inputs):
    """The code for GPUs in bfloat16."""
    x, *weights = (*inputs, None)[:7]
    return _with_tokens(x, CrossCovarianceWeights(*weights))


@pytest.mark.parametrize('shape', CASES[xca].values(), ids=CASES[xca])
def test_products_divided_by_norms_are_correlations(shape):
    function, inputs = xca(*shape, dtype=torch.float64)
    expected = on('reference', function, inputs)
    assert_same(on('auto', order_of_tokens, inputs), expected, 1e-11)


@pytest.mark.parametrize('path', ['portable', 'order of tokens'])
def test_second_derivatives(path):
    function, inputs = xca(1, 6, 4, 2, True, True, dtype=torch.float64)
    if path == 'order of tokens':
        assert torch.autograd.gradgradcheck(order_of_tokens, inputs, fast_mode=True)
    else:
        with use_ops(path):
            assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


def test_rounded_products_take_the_order_of_the_reference():
    """Rounded to TF32, squares that are computed from Gram matrices can be negative."""
    x = torch.randn(1, 400, 64)
    assert chosen(x[:, :1]) == 'reference'  # one token: all correlations are 1 or -1
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ('high', 'medium', 'highest'):
            torch.set_float32_matmul_precision(precision)
            assert chosen(x) == ('portable' if precision == 'highest' else 'reference')
    finally:
        torch.set_float32_matmul_precision(before)
