"""Convolutions in half precision on CPUs, where oneDNN's are wrong."""

import pytest
import torch
from torch import nn

from mmbixt.layers.context import call_in_float32

CASES = {
    # torch 2.11 computes a wrong result for these in bfloat16, on CPUs with AMX
    'patches': lambda: nn.Conv2d(6, 24, 16, 8, padding=4),
    'no bias': lambda: nn.Conv2d(6, 24, 16, 16, bias=False),
}


@pytest.mark.parametrize('is_autocast', [True, False])
@pytest.mark.parametrize('case', CASES)
def test_half_precision_is_exact_to_rounding(case, is_autocast):
    dtype = torch.float32 if is_autocast else torch.bfloat16
    x, conv = torch.randn(2, 6, 40, 64).to(dtype).requires_grad_(), CASES[case]().to(dtype)
    with torch.autocast('cpu', torch.bfloat16, enabled=is_autocast):
        out = call_in_float32(conv, x)
    assert out.dtype == torch.bfloat16
    grad = torch.randn_like(out)
    grads = torch.autograd.grad(out, [x, *conv.parameters()], grad)
    x = x.detach().double().requires_grad_()
    true = conv.double()(x)
    true_grads = torch.autograd.grad(true, [x, *conv.parameters()], grad.double())
    for one, other in zip([out, *grads], [true, *true_grads], strict=True):
        assert one.dtype == dtype or one is out
        assert (one - other).norm() < 0.005 * other.norm()
