"""Variants that the paper compares with BiXT; no weights of them are published."""

from typing import Any

from torch import nn

from mmbixt.backbones import BiXT
from mmbixt.backbones.arch import check_choice
from mmbixt.backbones.bixt_layers import (
    LatentCrossAttentionBlock,
    LatentLayer,
    SelfAttentionBlock,
)
from mmbixt.registry import MODELS
from projects.bixt_ablations.sequential import SequentialAttention

WITH_BIAS = ('qkv', 'q_latents', 'kv_latents', 'qkv_patches')


@MODELS.register_module()
class BiXTAblation(BiXT):
    """BiXT with another attention, or without biases.

    Args:
        args, options: of :class:`mmbixt.backbones.BiXT`.
        attention: 'bidirectional'; 'sequential' (the latents attend to the tokens, then the tokens
            to the updated latents; :class:`SequentialAttention`); or 'iterative'
            (only the latents are updated, as in Perceiver). 'iterative' has no feature maps but the
            unchanged tokens: it is for classifiers and needs ``latent_layer``; ``depth`` counts all
            of its layers.
        self_attentions: of the latents in each layer of 'iterative', after the cross-attention.
        share_first: 'iterative': all layers share the weights of one cross-attention, and its
            rate of stochastic depth. Without it, the first layer has a cross-attention of its own.
            mmengine's ``paramwise_cfg`` needs, in both cases, ``bypass_duplicate=True``.
        qkv_bias: biases of queries, keys and values in self-attention and sequential attention.
            Some parameters in the paper's tables are without, the published weights have them.
    """

    def __init__(
        self,
        *args: Any,
        attention: str = 'bidirectional',
        self_attentions: int = 1,
        share_first: bool = True,
        qkv_bias: bool = True,
        **options: Any,
    ) -> None:
        check_choice('attention', attention, ('bidirectional', 'sequential', 'iterative'))
        # plain values, which make_layers reads
        self.attention, self.self_attentions = attention, self_attentions
        self.share_first, self.qkv_bias = share_first, qkv_bias
        super().__init__(*args, **options)

    def make_layers(self, sizes: tuple, drop_path_rate: float) -> list[nn.Module]:
        if self.attention == 'iterative':
            layers = self.make_iterative_layers(sizes, drop_path_rate)
        else:
            layers = super().make_layers(sizes, drop_path_rate)
        if self.attention == 'sequential':
            for layer in layers:
                if not isinstance(layer, LatentLayer):
                    layer.cross_attention_latents_token.attn = SequentialAttention(*sizes[:2])
        if not self.qkv_bias:
            for name, module in nn.ModuleList(layers).named_modules():
                if name.endswith(tuple(f'attn.{linear}' for linear in WITH_BIAS)):
                    module.register_parameter('bias', None)
        return layers

    def make_iterative_layers(self, sizes: tuple, drop_path_rate: float) -> list[nn.Module]:
        if not self.latent_layer:
            raise ValueError(
                "attention='iterative' updates only the latents: it needs latent_layer=True."
            )
        layers, depth = [], self.arch['depth']
        for i in range(depth):
            rate = drop_path_rate * i / max(depth - 1, 1)
            if i == 0 or (i == 1 and not self.share_first):
                cross_attention = LatentCrossAttentionBlock(*sizes, rate)
            blocks = (SelfAttentionBlock(*sizes, rate) for _ in range(self.self_attentions))
            layers.append(LatentLayer(cross_attention, nn.Sequential(*blocks)))
        return layers
