"""Linear layers of tokens, by the fastest matrix product on the machine."""

import torch
from torch import Tensor
from torch.nn import functional

from mmbixt.ops.cpu.linear import linear_cpu, linear_per_image_cpu, outer_sum_per_image_cpu
from mmbixt.ops.dispatch import choose, implementations


def linear_per_image_reference(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    weight = weight.transpose(1, 2)
    return x @ weight if bias is None else torch.baddbmm(bias[:, None], x, weight)


def outer_sum_per_image_reference(a: Tensor, b: Tensor) -> Tensor:
    return a.transpose(1, 2) @ b


_LINEAR = implementations(functional.linear, cpu=linear_cpu)
_PER_IMAGE = implementations(linear_per_image_reference, cpu=linear_per_image_cpu)
_OUTER_SUM = implementations(outer_sum_per_image_reference, cpu=outer_sum_per_image_cpu)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x weight^T + bias``: tokens (...,C), a weight (out,C) and a bias (out,) to (...,out)."""
    return choose('linear', _LINEAR, x, weight.dtype, weight.shape[0])(x, weight, bias)


def linear_per_image(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """:func:`linear` with a weight (B,out,C) and a bias (B,out) per image: (B,N,C) to (B,N,out)."""
    rule = (x, weight.dtype, weight.shape[1], x.shape[0])
    return choose('linear', _PER_IMAGE, *rule)(x, weight, bias)


def outer_sum_per_image(a: Tensor, b: Tensor) -> Tensor:
    """``a^T b`` of each image: tokens (B,N,A) and (B,N,C) to (B,A,C), without gradients."""
    return choose('linear', _OUTER_SUM, b, a.dtype, a.shape[2], b.shape[0])(a, b)
