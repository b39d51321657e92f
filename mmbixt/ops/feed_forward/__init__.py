"""The MLP of a transformer block, with its norm, layer scale and residual."""

from torch import Tensor

from mmbixt.ops.cpu.feed_forward import feed_forward_cpu
from mmbixt.ops.dispatch import choose, implementations
from mmbixt.ops.feed_forward.portable import feed_forward_portable
from mmbixt.ops.feed_forward.reference import FeedForwardWeights, feed_forward_reference

__all__ = ['FeedForwardWeights', 'feed_forward']

_PATHS = implementations(feed_forward_reference, feed_forward_portable, feed_forward_cpu)


def feed_forward(x: Tensor, weights: FeedForwardWeights, residual: bool = True) -> Tensor:
    """Tokens (...,C) to (...,C): norm, linear layer, GELU, linear layer, scale.

    With ``residual`` the tokens are added to the result.
    """
    compute = choose('feed_forward', _PATHS, x, weights.fc1_weight.shape[0])
    return compute(x, weights, residual)
