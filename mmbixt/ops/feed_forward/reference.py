"""The definition: norm, two linear layers with a GELU between, scale, residual."""

from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear

from mmbixt.ops.feed_forward.weights import FeedForwardWeights


def feed_forward_reference(x: Tensor, weights: FeedForwardWeights, residual: bool = True) -> Tensor:
    """See :func:`mmbixt.ops.feed_forward`."""
    w = weights
    hidden = linear(
        layer_norm(x, x.shape[-1:], w.norm_weight, w.norm_bias, w.eps), w.fc1_weight, w.fc1_bias
    )
    out = linear(gelu(hidden), w.fc2_weight, w.fc2_bias)
    if w.scale is not None:
        out = w.scale * out
    return x + out if residual else out
