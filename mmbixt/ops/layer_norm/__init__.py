"""A norm of each token over its channels."""

from torch import Tensor

from mmbixt.ops.cpu.layer_norm import layer_norm_cpu
from mmbixt.ops.dispatch import choose, implementations
from mmbixt.ops.layer_norm.reference import layer_norm_reference

__all__ = ['layer_norm']

_PATHS = implementations(layer_norm_reference, cpu=layer_norm_cpu)


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
    return choose('layer_norm', _PATHS, x)(x, weight, bias, eps)
