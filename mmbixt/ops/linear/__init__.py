"""A linear map of each token, by whatever multiplies matrices fastest on the machine at hand."""

from torch import Tensor

from mmbixt.ops.linear.convolution import (
    linear_convolution,
    linear_gradients,
    linear_of_each,
    outer_sums,
)
from mmbixt.ops.linear.reference import linear_reference
from mmbixt.ops.paths import choose_path

__all__ = ['linear', 'linear_gradients', 'linear_of_each', 'outer_sums']

_PATHS = {'torch': linear_convolution, 'reference': linear_reference}


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Each token times a matrix.

    Args:
        x: tokens (...,C).
        weight: (out,C).
        bias: (out,) or None.

    Returns:
        (...,out).
    """
    return choose_path('linear', _PATHS)(x, weight, bias)
