"""Mathematics on tensors: torch only, no weights, no OpenMMLab import."""

from mmbixt.ops.bidirectional_attention import bidirectional_attention
from mmbixt.ops.cross_covariance import cross_covariance_attention
from mmbixt.ops.dispatch import ops_path, use_ops
from mmbixt.ops.feed_forward import FeedForwardWeights, feed_forward
from mmbixt.ops.inverse_attention import bidirectional_self_attention, self_attention
from mmbixt.ops.layer_norm import layer_norm
from mmbixt.ops.linear import linear, linear_per_image
from mmbixt.ops.routing_attention import route, routing_attention
from mmbixt.ops.window_attention import bidirectional_window_attention, window_attention

__all__ = [
    'FeedForwardWeights',
    'bidirectional_attention',
    'bidirectional_self_attention',
    'bidirectional_window_attention',
    'cross_covariance_attention',
    'feed_forward',
    'layer_norm',
    'linear',
    'linear_per_image',
    'ops_path',
    'route',
    'routing_attention',
    'self_attention',
    'use_ops',
    'window_attention',
]
