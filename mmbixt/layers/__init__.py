"""Modules and functions that attentions and networks share; they import torch alone."""

from mmbixt.layers.drop_path import DropPath
from mmbixt.layers.embedding import (
    ConvPatchEmbed,
    FourierPositionEncoding,
    LinearPatchEmbed,
    fourier_features,
    sinusoids,
)
from mmbixt.layers.maps import (
    LocalPatchInteraction,
    as_output,
    channels_last,
    make_resampler,
    map_to_tokens,
    tokens_to_map,
)
from mmbixt.layers.mlp import FeedForward, LayerScale, Mlp, SequentialMlp
from mmbixt.layers.softmax_attention import ClassAttention, ClassAttentionLayer, SelfAttention

__all__ = [
    'ClassAttention',
    'ClassAttentionLayer',
    'ConvPatchEmbed',
    'DropPath',
    'FeedForward',
    'FourierPositionEncoding',
    'LayerScale',
    'LinearPatchEmbed',
    'LocalPatchInteraction',
    'Mlp',
    'SelfAttention',
    'SequentialMlp',
    'as_output',
    'channels_last',
    'fourier_features',
    'make_resampler',
    'map_to_tokens',
    'sinusoids',
    'tokens_to_map',
]
