"""The definition: norm, two linear layers with a GELU between, scale, residual."""

from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear


def feed_forward_reference(
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
    """See :func:`mmbixt.ops.feed_forward`."""
    hidden = linear(layer_norm(x, x.shape[-1:], norm_weight, norm_bias, eps), fc1_weight, fc1_bias)
    out = linear(gelu(hidden), fc2_weight, fc2_bias)
    if scale is not None:
        out = scale * out
    return x + out if residual else out
