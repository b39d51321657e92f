"""Tokens that only the cyclic shift has made neighbours do not see each other."""

import pytest
import torch
from cases import CASES
from helpers import assert_close
from torch.nn.attention import SDPBackend, sdpa_kernel

from mmbixt.layers import softmax_attention


def test_hidden_tokens_get_no_weight():
    module, (x,) = CASES['BiSA in windows, learned, shifted']()
    mask = module.windows.shift_bias(x)
    assert mask.unique().tolist() == [-torch.inf, 0]
    assert (mask.diagonal(dim1=-2, dim2=-1) == 0).all()
    tokens = module.windows.cut(x).detach().requires_grad_()
    (grad,) = torch.autograd.grad(module.attention(tokens, mask)[:, -1, 0].sum(), tokens)
    assert torch.equal(grad[0, -1].abs().sum(-1) > 0, mask[-1, 0, 0] == 0)


@pytest.mark.parametrize('shape', [(2, 9, 9), (4, 2, 9, 9)])
def test_the_kernel_of_gpus_with_a_bias_equals_the_products(shape):
    """It runs on GPUs only, and is called here."""
    inputs = [torch.randn(3, 4, 2, 9, 8).double().requires_grad_() for _ in range(3)]
    bias, outcomes = torch.randn(shape).double().requires_grad_(), []
    for attend in (softmax_attention.fused_with_bias, softmax_attention.biased_attention):
        with sdpa_kernel(SDPBackend.MATH):
            out = attend(*inputs, 0.3, bias)
        outcomes.append([out, *torch.autograd.grad(out.sin().sum(), (*inputs, bias))])
    assert_close(*outcomes, 1e-11)
