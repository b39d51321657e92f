"""What the attentions and networks share: modules and functions on tensors; torch alone."""

from mmbixt.layers.class_attention import ClassAttentionLayer
from mmbixt.layers.drop_path import DropPath, residual
from mmbixt.layers.lpi import LocalPatchInteraction
from mmbixt.layers.maps import channels_last, map_to_tokens, tokens_to_map
from mmbixt.layers.mlp import FeedForward, Mlp, SequentialMlp
from mmbixt.layers.patch_embed import ConvPatchEmbed, LinearPatchEmbed
from mmbixt.layers.position_encoding import (
    FourierPositionEncoding,
    fourier_features,
    sinusoids,
)
from mmbixt.layers.resampling import make_resampler
from mmbixt.layers.self_attention import ClassAttention, SelfAttention

__all__ = [
    'ClassAttention',
    'ClassAttentionLayer',
    'ConvPatchEmbed',
    'DropPath',
    'FeedForward',
    'FourierPositionEncoding',
    'LinearPatchEmbed',
    'LocalPatchInteraction',
    'Mlp',
    'SelfAttention',
    'SequentialMlp',
    'channels_last',
    'fourier_features',
    'make_resampler',
    'map_to_tokens',
    'residual',
    'sinusoids',
    'tokens_to_map',
]
