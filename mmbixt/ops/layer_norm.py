"""Layer norm: each token is normalised over its channels."""

from torch import Tensor
from torch.nn import functional

from mmbixt.ops.cpu.layer_norm import layer_norm_cpu
from mmbixt.ops.dispatch import choose, implementations


def layer_norm_reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


_PATHS = implementations(layer_norm_reference, cpu=layer_norm_cpu)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` over the channels of (...,C).

    Weight and bias are (C,).
    """
    return choose('layer_norm', _PATHS, x)(x, weight, bias, eps)
