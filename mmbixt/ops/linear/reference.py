"""The definition, which is torch's."""

import torch
from torch import Tensor
from torch.nn import functional


def linear_reference(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """See :func:`mmbixt.ops.linear`."""
    return functional.linear(x, weight, bias)


def linear_per_image_reference(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """See :func:`mmbixt.ops.linear_per_image`."""
    weight = weight.transpose(1, 2)
    return x @ weight if bias is None else torch.baddbmm(bias[:, None], x, weight)


def outer_sum_per_image_reference(a: Tensor, b: Tensor) -> Tensor:
    """See :func:`mmbixt.ops.outer_sum_per_image`."""
    return a.transpose(1, 2) @ b
