"""BiXT: sequential and iterative attention. No weights of them are published."""

from typing import Any

from torch import Tensor, nn

from mmbixt.backbones import BiXT
from mmbixt.backbones.arch import check_choice
from mmbixt.backbones.bixt_layers import (
    LatentCrossAttentionBlock,
    LatentLayer,
    SelfAttentionBlock,
    Sizes,
)
from mmbixt.layers.softmax_attention import fused_attention, head_width, join_heads, split_heads
from mmbixt.registry import MODELS

WITH_BIAS = ('qkv', 'q_latents', 'kv_latents', 'qkv_patches')


class SequentialAttention(nn.Module):
    """Latents attend to the tokens, then the tokens to the latents with their update (Table 1a).

    For each head, with latents (M,d) and tokens (N,d), each with their own q, k and v::

        latents' update = softmax(q_latents k_tokens^T / sqrt(d), over tokens) v_tokens
        tokens' update = softmax(q_tokens k_latents^T / sqrt(d), over latents) v_latents

    The paper gives the order and the number of projections, six for q, k and v. Open is what
    k_latents and v_latents are computed from: here from the attention's input (in a block after
    its norm) plus its projected update. With another norm in between, a classifier of 11 layers
    would have more than the paper's 14.60 M parameters.

    Args:
        channels: width C of latents and tokens.
        num_heads: heads h; d = C / h.
    """

    def __init__(self, channels: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = head_width(channels, num_heads) ** -0.5
        self.q_latents = nn.Linear(channels, channels)
        self.kv_latents = nn.Linear(channels, 2 * channels)
        self.qkv_patches = nn.Linear(channels, 3 * channels)
        self.proj_lat = nn.Linear(channels, channels)
        self.proj_pat = nn.Linear(channels, channels)

    def forward(self, latents: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Latents (B,M,C) or (1,M,C) and tokens (B,N,C) to the updates of both, of batch B."""
        q_tokens, k_tokens, v_tokens = split_heads(self.qkv_patches(tokens), 3, self.num_heads)
        (q_latents,) = split_heads(self.q_latents(latents), 1, self.num_heads)
        q_latents = q_latents.expand(len(tokens), -1, -1, -1)
        out = fused_attention(q_latents, k_tokens, v_tokens, self.scale)
        for_latents = self.proj_lat(join_heads(out))
        updated = self.kv_latents(latents + for_latents)
        k_latents, v_latents = split_heads(updated, 2, self.num_heads)
        out = fused_attention(q_tokens, k_latents, v_latents, self.scale)
        return for_latents, self.proj_pat(join_heads(out))


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

    def make_layers(self, sizes: Sizes, drop_path_rate: float) -> list[nn.Module]:
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

    def make_iterative_layers(self, sizes: Sizes, drop_path_rate: float) -> list[nn.Module]:
        if not self.latent_layer:
            raise ValueError(
                "attention='iterative' updates only the latents: it needs latent_layer=True."
            )
        layers, depth = [], self.arch['depth']
        for i in range(depth):
            own = sizes._replace(drop_path=drop_path_rate * i / max(depth - 1, 1))
            if i == 0 or (i == 1 and not self.share_first):
                cross_attention = LatentCrossAttentionBlock(own)
            blocks = (SelfAttentionBlock(own) for _ in range(self.self_attentions))
            layers.append(LatentLayer(cross_attention, nn.Sequential(*blocks)))
        return layers
