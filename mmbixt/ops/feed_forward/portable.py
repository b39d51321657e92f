"""Scale and residual in one pass over the tokens."""

from torch import Tensor

from mmbixt.ops.feed_forward.reference import FeedForwardWeights, feed_forward_reference, mlp
from mmbixt.ops.residual import add_scaled


def feed_forward_portable(x: Tensor, weights: FeedForwardWeights, residual: bool) -> Tensor:
    if weights.scale is None or not residual:
        return feed_forward_reference(x, weights, residual)
    return add_scaled(x, mlp(x, weights), weights.scale)
