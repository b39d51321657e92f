"""The MLP of a transformer block with all that is around it."""

from torch import Tensor

from mmbixt.ops.feed_forward.chunked import feed_forward_chunked
from mmbixt.ops.feed_forward.reference import feed_forward_reference
from mmbixt.ops.paths import choose_path

__all__ = ['feed_forward']

_PATHS = {'torch': feed_forward_chunked, 'reference': feed_forward_reference}


def feed_forward(
    x: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    eps: float,
    fc1_weight: Tensor,
    fc1_bias: Tensor,
    fc2_weight: Tensor,
    fc2_bias: Tensor,
    scale: Tensor | None = None,
    residual: bool = True,
) -> Tensor:
    """Each token for itself: norm, linear layer, GELU, linear layer, scale, residual.

    Args:
        x: tokens (...,C).
        norm_weight: (C,), of the layer norm.
        norm_bias: (C,).
        eps: of the layer norm.
        fc1_weight: (hidden,C).
        fc1_bias: (hidden,).
        fc2_weight: (C,hidden).
        fc2_bias: (C,).
        scale: layer scale (C,) or None.
        residual: whether ``x`` is added to the result.

    Returns:
        (...,C).
    """
    compute = choose_path('feed_forward', _PATHS)
    norm = (norm_weight, norm_bias, eps)
    return compute(x, *norm, fc1_weight, fc1_bias, fc2_weight, fc2_bias, scale, residual)
