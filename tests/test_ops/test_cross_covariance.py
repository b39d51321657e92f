from itertools import chain

import pytest
import torch
from helpers import assert_close
from op_checks import assert_finite, assert_same, learned, with_gradients

from mmbixt.ops import cross_covariance_attention, dispatch, use_ops

SHAPES = {  # B, N, C, h
    'XCiT-T12/16 at 512 px': (1, 1024, 192, 4),
    'nano, wide heads': (2, 300, 128, 4),
    'twice as many tokens as channels': (1, 32, 16, 2),
    'fewer tokens than channels': (1, 10, 48, 4),
    'odd sizes, batch 3': (3, 77, 15, 5),
    'one channel a head': (2, 20, 4, 4),
}


def chosen(x):
    return dispatch.RULES['cross_covariance_attention'](x)[0]


def make_inputs(shape, dtype, bias=True, factor=1.0):
    batch, n, c, heads = shape
    sizes = [(batch, n, c), (3 * c, c), (3 * c,), (heads, 1, 1), (c, c), (c,)]
    inputs = learned(*sizes, dtype=dtype, factor=factor)
    return inputs if bias else [*inputs[:2], None, *inputs[3:]]


def run(path, inputs, *options):
    with use_ops(path):
        return with_gradients(lambda *x: cross_covariance_attention(*x, *options), inputs)


@pytest.mark.parametrize('bias', [True, False], ids=['bias', 'no bias'])
@pytest.mark.parametrize('shape', SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.float64, 1e-11), (torch.float32, 2e-5)])
def test_fast_path_equals_reference(shape, dtype, tolerance, bias):
    inputs = make_inputs(shape, dtype, bias)
    expected = run('reference', inputs)
    for path in ('portable', 'auto'):
        assert_same(run(path, inputs), expected, tolerance)


def test_scale_is_that_of_the_output():
    inputs = make_inputs((2, 50, 12, 3), torch.float64)
    (scale,) = learned((12,), dtype=torch.float64)
    found = [run(path, [*inputs, scale]) for path in ('portable', 'reference')]
    assert_same(*found, 1e-11)
    assert_close(found[0][0][0], scale * cross_covariance_attention(*inputs), 1e-12)


TOKENS = {  # where the Gram matrix could lose digits
    'a mean of 10': lambda x: x + 10 * torch.randn(x.shape[-1], dtype=x.dtype),
    'a mean of 100, hardly a spread': lambda x: 0.01 * x + 100,
    'a channel 50 times the others': lambda x: (
        x * torch.where(torch.arange(x.shape[-1]) == 3, 50, 1)
    ),
    'all tokens equal': lambda x: x[:, :1].expand_as(x).contiguous(),
    'few dimensions': lambda x: x * (torch.arange(x.shape[-1]) < 4) + 1e-3 * x,
}


@pytest.mark.parametrize('cancelled', [False, True], ids=['', 'bias against the mean'])
@pytest.mark.parametrize('kind', TOKENS)
def test_no_digits_are_lost(kind, cancelled):
    """In float32 the fast path is not much further from float64 than the reference."""
    inputs = [x.detach() for x in make_inputs((1, 400, 64, 4), torch.float64)]
    inputs[0] = TOKENS[kind](inputs[0])
    for i in (1, 2, 4):
        inputs[i] = 0.1 * inputs[i]
    if cancelled:  # queries and keys without their mean
        inputs[2] = 0.1 * inputs[2] - inputs[1] @ inputs[0].mean((0, 1))
    single = [x.float().requires_grad_() for x in inputs]
    exact = run('reference', [x.detach().double().requires_grad_() for x in single])
    errors = {
        path: [
            float((a.double() - b).abs().max() / b.abs().max().clamp_min(1e-30))
            for a, b in zip(chain(*run(path, single)), chain(*exact), strict=True)
        ]
        for path in ('portable', 'reference')
    }
    assert chosen(single[0]) == 'portable'
    assert errors['portable'][0] <= max(20 * errors['reference'][0], 2e-5)
    # of the tokens, the weights, the projection
    for i in (1, 2, 5):
        assert errors['portable'][i] <= max(20 * errors['reference'][i], 1e-4)


def test_reference_is_the_formula():
    x, weight, bias, temperature, proj, proj_bias = make_inputs((1, 6, 4, 2), torch.float64)
    with use_ops('reference'):
        out = cross_covariance_attention(x, weight, bias, temperature, proj, proj_bias)
    queries, keys, values = (x[0] @ weight.T + bias).T.split(4)  # (C,N) each
    mixed = torch.empty(4, 6, dtype=torch.float64)
    for head in range(2):
        for i in range(2 * head, 2 * head + 2):
            scores = torch.stack(
                [
                    temperature[head, 0, 0] * torch.cosine_similarity(queries[i], keys[j], dim=0)
                    for j in range(2 * head, 2 * head + 2)
                ]
            )
            mixed[i] = scores.softmax(0) @ values[2 * head : 2 * head + 2]
    assert_close(out[0], mixed.T @ proj.T + proj_bias, 1e-12)


def test_one_token_takes_the_order_of_the_reference():
    """Its correlations are all 1 or -1, and digits cancel in what the Gram matrix says of them."""
    inputs = make_inputs((3, 1, 16, 2), torch.float64)
    assert chosen(inputs[0]) == 'reference'
    assert_same(run('auto', inputs), run('reference', inputs), 0)


@pytest.mark.parametrize('factor', [1e3, 1e-3, 0])
def test_large_and_small_tokens_stay_finite(factor):
    inputs = make_inputs((1, 64, 16, 2), torch.float32, bias=factor > 0, factor=factor)
    assert_finite(run('portable', inputs))


def test_first_and_second_derivatives():
    inputs = make_inputs((1, 6, 4, 2), torch.float64)
    with use_ops('portable'):
        assert torch.autograd.gradcheck(cross_covariance_attention, inputs)
        assert torch.autograd.gradgradcheck(cross_covariance_attention, inputs, fast_mode=True)


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
@pytest.mark.parametrize('autocast', [False, True])
def test_portable_path_sums_in_float32_where_products_are_half(dtype, autocast):
    inputs = [0.3 * x.detach() for x in make_inputs((2, 300, 64, 2), torch.float32)]
    exact = run('reference', [x.double().requires_grad_() for x in inputs])
    if not autocast:
        inputs = [x.to(dtype) for x in inputs]
    inputs = [x.requires_grad_() for x in inputs]
    with torch.autocast('cpu', dtype, enabled=autocast):
        half = run('portable', inputs)
        assert chosen(inputs[0]) == 'reference'
    assert half[0][0].dtype == dtype
    for actual, expected in ((half[0][0], exact[0][0]), (half[1][0], exact[1][0])):
        assert_close(actual.double(), expected, 0.05)


def to_tf32(x):
    """float32 with the 10 bits of TF32, as tensor cores read it."""
    bits = x.view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def test_rounded_products_take_the_order_of_the_reference():
    """Where float32 products are rounded to TF32, squares computed from Gram matrices can be
    negative: here more than half of all norms are wrong. So `auto` does not compute them so."""
    x = torch.randn(1, 400, 64, dtype=torch.float64)
    directions = torch.linalg.qr(torch.randn(64, 64, dtype=torch.float64))[0]
    x = (x * torch.logspace(3, -3, 64, dtype=torch.float64) @ directions.T).float()
    weight = directions.T[40:].float()  # of the small directions only
    exact = (x.double() @ weight.double().T).square().sum(1)
    gram = to_tf32(x).transpose(1, 2) @ to_tf32(x)
    squares = ((to_tf32(weight) @ to_tf32(gram)) * weight).sum(-1)
    assert (((squares - exact) / exact).abs() > 0.5).double().mean() > 0.5
    before = torch.get_float32_matmul_precision()
    try:
        for precision, path in (
            ('high', 'reference'),
            ('medium', 'reference'),
            ('highest', 'portable'),
        ):
            torch.set_float32_matmul_precision(precision)
            assert chosen(x) == path
    finally:
        torch.set_float32_matmul_precision(before)
