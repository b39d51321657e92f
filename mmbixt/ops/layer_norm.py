"""A norm of each token over its channels."""

from torch import Tensor
from torch.nn import functional

from mmbixt.ops.cpu.layer_norm import layer_norm_cpu
from mmbixt.ops.dispatch import choose, implementations


def layer_norm_reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


_PATHS = implementations(layer_norm_reference, cpu=layer_norm_cpu)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Each token of (...,C) to a mean of 0 and a variance of 1, then a weight and a bias (C,).

    ``eps`` is added to the variance.
    """
    return choose('layer_norm', _PATHS, x)(x, weight, bias, eps)
