"""Modules with weights, which call :mod:`mmbixt.ops`; torch only, timm is optional."""

from mmbixt.layers.bidirectional_attention import BidirectionalAttention, LatentAttention
from mmbixt.layers.bidirectional_self_attention import BidirectionalSelfAttention, WindowAttention
from mmbixt.layers.cross_covariance_attention import CrossCovarianceAttention
from mmbixt.layers.feed_forward import FeedForward, Mlp, SequentialMlp, add_feed_forward, add_update
from mmbixt.layers.lpi import LocalPatchInteraction
from mmbixt.layers.maps import channels_last, map_to_tokens, tokens_to_map
from mmbixt.layers.norm import LayerNorm
from mmbixt.layers.patch_embed import ConvPatchEmbed, LinearPatchEmbed
from mmbixt.layers.position_encoding import FourierPositionEncoding, fourier_features
from mmbixt.layers.residual_stream import ResidualStream
from mmbixt.layers.routing_attention import FullAttention, RoutingAttention
from mmbixt.layers.self_attention import ClassAttention, SelfAttention

__all__ = [
    'BidirectionalAttention',
    'BidirectionalSelfAttention',
    'ClassAttention',
    'ConvPatchEmbed',
    'CrossCovarianceAttention',
    'FeedForward',
    'FourierPositionEncoding',
    'FullAttention',
    'LatentAttention',
    'LayerNorm',
    'LinearPatchEmbed',
    'LocalPatchInteraction',
    'Mlp',
    'ResidualStream',
    'RoutingAttention',
    'SelfAttention',
    'SequentialMlp',
    'WindowAttention',
    'add_feed_forward',
    'add_update',
    'channels_last',
    'fourier_features',
    'map_to_tokens',
    'tokens_to_map',
]
