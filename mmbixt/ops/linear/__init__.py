"""Linear layers of tokens, by whatever multiplies matrices fastest on the machine at hand."""

from torch import Tensor

from mmbixt.ops.cpu.linear import linear_cpu, linear_per_image_cpu, outer_sum_per_image_cpu
from mmbixt.ops.dispatch import choose
from mmbixt.ops.linear.reference import (
    linear_per_image_reference,
    linear_reference,
    outer_sum_per_image_reference,
)

__all__ = ['linear', 'linear_per_image', 'outer_sum_per_image']


def _paths(reference, cpu) -> dict:
    return {'reference': reference, 'portable': reference, 'cpu': cpu}


_LINEAR = _paths(linear_reference, linear_cpu)
_PER_IMAGE = _paths(linear_per_image_reference, linear_per_image_cpu)
_OUTER_SUM = _paths(outer_sum_per_image_reference, outer_sum_per_image_cpu)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Each token times a matrix.

    Args:
        x: tokens (...,C).
        weight: (out,C).
        bias: (out,) or None.

    Returns:
        (...,out).
    """
    return choose('linear', _LINEAR, x, weight)(x, weight, bias)


def linear_per_image(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The same with a matrix for each image.

    Args:
        x: tokens (B,N,C).
        weight: (B,out,C).
        bias: (B,out) or None.

    Returns:
        (B,N,out).
    """
    first = (x[:1].flatten(0, 1), weight[:1].flatten(0, 1))  # there may be no image
    return choose('linear', _PER_IMAGE, *first)(x, weight, bias)


def outer_sum_per_image(a: Tensor, b: Tensor) -> Tensor:
    """Tokens (B,N,A) and (B,N,C) to the sums of their outer products, (B,A,C); no gradients."""
    weight = a.new_empty(a.shape[2], b.shape[2])  # only its shape is read
    return choose('linear', _OUTER_SUM, b[:1].flatten(0, 1), weight)(a, b)
