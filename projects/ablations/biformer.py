"""BiFormer: the steps from the layout of Swin-T to BiFormer-S (Table 6), and the model with that
layout in the authors' channels-first code."""

import re
from typing import Any

from torch import Tensor, nn

from mmbixt.attention.routing import FullAttention, Regions, RoutingAttention, enhance_locally
from mmbixt.backbones import BiFormer
from mmbixt.backbones.arch import check_choice
from mmbixt.backbones.base import State
from mmbixt.backbones.biformer import overlapping_downsampling, patchwise_downsampling
from mmbixt.checkpoints.state_dict import rename
from mmbixt.layers.initialise import init_linear
from mmbixt.layers.sizes import ceil_div
from mmbixt.layers.softmax_attention import fused_attention, join_heads, split_heads
from mmbixt.registry import MODELS

DOWNSAMPLING = {'overlapping': overlapping_downsampling, 'patchwise': patchwise_downsampling}
LINEAR = re.compile(r'\.(qkv|wo|proj|mlp\.\d)\.weight$')


class SmallerRegions(RoutingAttention):
    """The sides of regions are rounded down, where ``num_regions`` does not divide those of the
    map, so that there are more regions. With 'legacy' the padding is keys and values of zero."""

    is_padded_before = False

    def regions(self, height: int, width: int) -> Regions:
        """The regions of a feature map of this size."""
        if self.num_regions == 'auto':
            return super().regions(height, width)
        sides = [max(1, side // self.num_regions) for side in (height, width)]
        return Regions(*map(ceil_div, (height, width), sides), *sides)


class LocalValues(FullAttention):
    """LePE of the values: ``out = proj(softmax(q k^T / sqrt(d)) v + lepe(v))``."""

    def forward(self, x: Tensor) -> Tensor:
        """(B,H,W,C) to (B,H,W,C)."""
        qkv = self.qkv(x)
        q, k, v = split_heads(qkv.flatten(1, 2), 3, self.num_heads)
        out = join_heads(fused_attention(q, k, v, self.scale)).unflatten(1, x.shape[1:3])
        return self.proj(out + enhance_locally(self.lepe, qkv.chunk(3, dim=-1)[2]))


@MODELS.register_module()
class BiFormerAblation(BiFormer):
    """BiFormer with other patches, other positions, or the attentions of the other code.

    Args:
        args, options: of :class:`mmbixt.backbones.BiFormer`.
        patch_embed: 'overlapping': convolutions of 3 x 3, sides are rounded up; 'patchwise': as in
            a Swin Transformer, sides are rounded down. Default: that of the architecture.
        position_conv: whether each block begins with a depthwise convolution, which encodes
            positions. Default: that of the architecture.
        channels_first: with arch='stl' the model of the authors' channels-first code.
    """

    def __init__(
        self,
        *args: Any,
        patch_embed: str | None = None,
        position_conv: bool | None = None,
        channels_first: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        check_choice('patch_embed', patch_embed, (None, *DOWNSAMPLING))
        self.channels_first = channels_first
        widths = self.arch['embed_dims'][: len(self.stages)]
        if patch_embed is not None:
            self.downsample_layers = DOWNSAMPLING[patch_embed](self.in_channels, widths)
        for width, stage in zip(widths, self.stages, strict=True):
            for block in stage:
                if position_conv is not None:
                    conv = nn.Conv2d(width, width, 3, padding=1, groups=width)
                    block.pos_embed = conv if position_conv else None
                if channels_first:
                    block.attn = of_channels_first(width, block.attn)
        self.apply(init_linear)
        self.finish_init()

    def convert(self, state: State) -> dict[str, Tensor]:
        """From the authors' files. A file of the other code has the same shapes with another
        meaning: its names stay, do not match, and raise an error."""
        names = {'.attn.qkv_linear.': '.attn.qkv.qkv.', '.attn.output_linear.': '.attn.wo.'}
        is_theirs = any('.blocks.' in key for key in state)
        if self.channels_first and is_theirs:
            if not any('.attn.qkv_linear.' in key for key in state):
                return dict(state)
            for old, new in names.items():
                state = rename(state, lambda key, old=old, new=new: key.replace(old, new))
            # linear layers are 1 x 1 convolutions there
            state = {k: x.flatten(1) if LINEAR.search(k) else x for k, x in state.items()}
        return super().convert(state)


def of_channels_first(width: int, attention: nn.Module) -> nn.Module:
    """An attention of the channels-first code in place of one of the other code."""
    if isinstance(attention, FullAttention):
        return LocalValues(width, attention.num_heads)
    names = 'num_heads', 'topk', 'num_regions', 'padding'
    return SmallerRegions(width, *(getattr(attention, name) for name in names))
