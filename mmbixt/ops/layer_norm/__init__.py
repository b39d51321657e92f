"""A norm of each token over its channels."""

from torch import Tensor

from mmbixt.ops.layer_norm.operator import layer_norm_as_it_is
from mmbixt.ops.layer_norm.reference import layer_norm_reference
from mmbixt.ops.paths import choose_path

__all__ = ['layer_norm']

_PATHS = {'torch': layer_norm_as_it_is, 'reference': layer_norm_reference}


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Each token to a mean of 0 and a variance of 1, then weighed.

    Args:
        x: tokens (...,C).
        weight: (C,).
        bias: (C,).
        eps: added to the variance.

    Returns:
        (...,C).
    """
    return choose_path('layer_norm', _PATHS)(x, weight, bias, eps)
