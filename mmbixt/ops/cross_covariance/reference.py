"""The definition: queries, keys and values of each token, normalised over the tokens."""

from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import linear, normalize


class CrossCovarianceWeights(NamedTuple):
    """The arguments of :func:`mmbixt.ops.cross_covariance_attention` except the tokens."""

    qkv_weight: Tensor
    qkv_bias: Tensor | None
    temperature: Tensor
    proj_weight: Tensor
    proj_bias: Tensor
    scale: Tensor | None


def split_channels(qkv: Tensor, heads: int) -> tuple[Tensor, ...]:
    """(B,N,3C) to queries, keys and values, (B,h,d,N) each."""
    return qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 4, 1).unbind(0)


def cross_covariance_maps(queries: Tensor, keys: Tensor, temperature: Tensor) -> Tensor:
    """The attention of channels to channels of a head, (B,h,d,d); each row sums to one.

    Queries and keys are (B,h,d,N), the temperature is (h,1,1).
    """
    cosine = normalize(queries, dim=-1) @ normalize(keys, dim=-1).transpose(-2, -1)
    return (cosine * temperature).softmax(dim=-1)


def cross_covariance(qkv: Tensor, temperature: Tensor) -> Tensor:
    """Attention without projections: queries, keys and values (B,N,3C) to (B,N,C)."""
    queries, keys, values = split_channels(qkv, temperature.shape[0])
    attention = cross_covariance_maps(queries, keys, temperature)
    return (attention @ values).permute(0, 3, 1, 2).flatten(2)


def cross_covariance_attention_reference(x: Tensor, weights: CrossCovarianceWeights) -> Tensor:
    w = weights
    out = cross_covariance(linear(x, w.qkv_weight, w.qkv_bias), w.temperature)
    out = linear(out, w.proj_weight, w.proj_bias)
    return out if w.scale is None else w.scale * out
