"""XCiT: the ablations of Table 4.

Open, and chosen here: without attention or LPI a layer has no norm and no scale of it either, and a
temperature that is not learned is 1.
"""

from typing import Any

import torch
from torch import Tensor, nn

from mmbixt.attention import CrossCovarianceAttention
from mmbixt.attention.cross_covariance import split_channels
from mmbixt.backbones import XCiT, xcit
from mmbixt.backbones.arch import check_choice
from mmbixt.layers import LinearPatchEmbed
from mmbixt.layers.initialise import init_linear
from mmbixt.registry import MODELS


class Attention(CrossCovarianceAttention):
    """Cross-covariance attention, perhaps with the queries and keys as they are, and without
    temperatures."""

    def __init__(
        self, channels: int, num_heads: int, l2_norm: bool, learned_temperature: bool
    ) -> None:
        super().__init__(channels, num_heads)
        self.l2_norm = l2_norm
        if not learned_temperature:
            del self.temperature
            self.register_buffer('temperature', torch.ones(num_heads, 1, 1), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B,N,C) to (B,N,C)."""
        if self.l2_norm:
            return super().forward(tokens)
        queries, keys, values = split_channels(self.qkv(tokens), self.num_heads)
        attention = (self.temperature * queries @ keys.transpose(-2, -1)).softmax(dim=-1)
        return self.proj((attention @ values).permute(0, 3, 1, 2).flatten(2))


class Layer(xcit.Layer):
    """A layer of XCiT, perhaps without attention or LPI."""

    def __init__(self, *sizes: Any, xca: bool, lpi: bool, **attention: bool) -> None:
        super().__init__(*sizes)
        self.attn = Attention(*sizes[:2], **attention)
        if not xca:
            self.norm1 = self.attn = self.gamma1 = None
        if not lpi:
            self.norm3 = self.local_mp = self.gamma3 = None

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """Tokens (B,N,C) of a grid (H,W) to (B,N,C)."""
        if self.attn is not None:
            x = x + self.drop_path(self.gamma1 * self.attn(self.norm1(x)))
        if self.local_mp is not None:
            x = x + self.drop_path(self.gamma3 * self.local_mp(self.norm3(x), grid))
        return x + self.drop_path(self.gamma2 * self.mlp(self.norm2(x)))


@MODELS.register_module()
class XCiTAblation(XCiT):
    """XCiT without parts.

    Args:
        args, options: of :class:`mmbixt.backbones.XCiT`.
        patch_embed: 'conv', a stem of 3x3 convolutions, or 'linear', one layer of each patch.
        xca, lpi: whether layers have cross-covariance attention, and local patch interaction.
        l2_norm: whether each channel of queries and keys is divided by its length.
        learned_temperature: whether each head has a temperature.
    """

    def __init__(
        self,
        *args: Any,
        patch_embed: str = 'conv',
        xca: bool = True,
        lpi: bool = True,
        l2_norm: bool = True,
        learned_temperature: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        check_choice('patch_embed', patch_embed, ('conv', 'linear'))
        names = 'embed_dims', 'num_heads', 'mlp_ratio', 'layer_scale', 'drop_path_rate'
        channels, heads, ratio, *scale_and_rate = (self.arch[name] for name in names)
        if patch_embed == 'linear':
            size = self.patch_size
            self.patch_embed = LinearPatchEmbed(channels, size, self.in_channels, size)
        parts = dict(xca=xca, lpi=lpi, l2_norm=l2_norm, learned_temperature=learned_temperature)
        sizes = channels, heads, int(channels * ratio), *scale_and_rate
        self.blocks = nn.ModuleList(Layer(*sizes, **parts) for _ in self.blocks)
        self.apply(init_linear)
        self.finish_init()
