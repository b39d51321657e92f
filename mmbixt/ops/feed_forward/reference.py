"""The definition: norm, two linear layers with a GELU between, scale, residual."""

from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear


class FeedForwardWeights(NamedTuple):
    """The weights of an MLP, of the layer norm before it and of the layer scale after it.

    Attributes:
        norm_weight, norm_bias: (C,).
        eps: of the layer norm.
        fc1_weight, fc1_bias: (hidden,C) and (hidden,).
        fc2_weight, fc2_bias: (C,hidden) and (C,).
        scale: (C,) or None.
    """

    norm_weight: Tensor
    norm_bias: Tensor
    eps: float
    fc1_weight: Tensor
    fc1_bias: Tensor
    fc2_weight: Tensor
    fc2_bias: Tensor
    scale: Tensor | None = None


def feed_forward_reference(x: Tensor, weights: FeedForwardWeights, residual: bool) -> Tensor:
    out = mlp(x, weights)
    if weights.scale is not None:
        out = weights.scale * out
    return x + out if residual else out


def mlp(x: Tensor, weights: FeedForwardWeights) -> Tensor:
    """``fc2(gelu(fc1(norm(x))))``, (...,C) to (...,C)."""
    w = weights
    normed = layer_norm(x, x.shape[-1:], w.norm_weight, w.norm_bias, w.eps)
    hidden = linear(normed, w.fc1_weight, w.fc1_bias)
    return linear(gelu(hidden), w.fc2_weight, w.fc2_bias)
