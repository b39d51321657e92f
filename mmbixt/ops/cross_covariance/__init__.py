"""Attention over channels instead of tokens (XCiT)."""

from torch import Tensor

from mmbixt.ops.cross_covariance.portable import cross_covariance_attention_portable
from mmbixt.ops.cross_covariance.reference import (
    CrossCovarianceWeights,
    cross_covariance,
    cross_covariance_attention_reference,
    cross_covariance_maps,
    split_channels,
)
from mmbixt.ops.dispatch import choose, implementations

__all__ = [
    'cross_covariance',
    'cross_covariance_attention',
    'cross_covariance_maps',
    'split_channels',
]

_PATHS = implementations(cross_covariance_attention_reference, cross_covariance_attention_portable)


def cross_covariance_attention(
    x: Tensor,
    qkv_weight: Tensor,
    qkv_bias: Tensor | None,
    temperature: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    scale: Tensor | None = None,
) -> Tensor:
    """Channels of a head attend to each other by their cosine over all tokens.

    The equation is in :class:`mmbixt.layers.CrossCovarianceAttention`. The projections are part of
    the op, because the fast path does not compute queries, keys and values.

    Args:
        x: tokens (B,N,C).
        qkv_weight: (3C,C): rows of q, then k, then v, each split among the heads in order.
        qkv_bias: (3C,) or None.
        temperature: (h,1,1): factor of the cosines of each head.
        proj_weight, proj_bias: (C,C) and (C,), of the output.
        scale: layer scale of the output, (C,) or None.

    Returns:
        (B,N,C).
    """
    projections = (qkv_weight, qkv_bias, temperature, proj_weight, proj_bias)
    weights = CrossCovarianceWeights(*projections, scale)
    return choose('cross_covariance_attention', _PATHS, x)(x, weights)
