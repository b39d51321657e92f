"""The authors' layers between a backbone and the linear head of a classifier.

Each class is a mixin: it adds the layers, under the authors' names, to the class that inherits it,
a neck for mmpretrain (``mmbixt.classification``) or a classifier for timm (``mmbixt.timm``).
"""

import re
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmbixt.layers import ClassAttentionLayer, map_to_tokens
from mmbixt.layers.initialise import init_linear


class FinalLayers:
    """The mean of the last feature map, without further layers."""

    pools: ClassVar[tuple[str, ...]] = ('avg', '')  # what timm's ``global_pool`` may be
    reads_latents = False  # True: their input is the latents (B,M,C), not a map (B,C,H,W)

    def add_final_layers(self, in_channels: int) -> None:
        """Called by the constructor."""

    def finish(self, x: Tensor) -> Tensor:
        """The last output of the backbone to the tensor that is pooled."""
        return x

    def pool(self, x: Tensor) -> Tensor:
        """One vector (B,C) for each image."""
        return x.mean(dim=(2, 3))

    def normalise(self, feature_map: Tensor, is_last: bool) -> Tensor:
        """A feature map (B,C,H,W) through the final norm, if that norm fits it."""
        return feature_map

    def remove_final_layers(self, norm: bool, head: bool) -> None:
        """Remove the last norm, and layers that only the head needs."""


class ClassAttention(FinalLayers):
    """XCiT's: a class token attends to the tokens in a few layers, and a norm."""

    pools = ('token', '')

    def add_final_layers(
        self,
        in_channels: int,
        num_heads: int,
        depth: int = 2,
        mlp_ratio: float = 4,
        layer_scale: float = 1.0,
        tokens_norm: bool = True,
    ) -> None:
        """``mlp_ratio`` is the hidden width of the MLPs, divided by that of the feature map.

        Layer scales start at ``layer_scale``: in the authors' code at 1 for backbones of 12 layers
        and 1e-5 for 24. For ``tokens_norm`` see :class:`mmbixt.layers.ClassAttentionLayer`.
        """
        sizes = (in_channels, num_heads, int(in_channels * mlp_ratio), layer_scale, tokens_norm)
        self.cls_token = nn.Parameter(torch.empty(1, 1, in_channels))
        self.cls_attn_blocks = nn.Sequential(*(ClassAttentionLayer(*sizes) for _ in range(depth)))
        self.norm = nn.LayerNorm(in_channels, eps=1e-6)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        self.cls_attn_blocks.apply(init_linear)

    def convert(self, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Concatenate timm's linear layers q, k and v of class attention to the authors' qkv."""
        fused = dict(state)
        for key in state:
            first = re.fullmatch(r'(cls_attn_blocks\.\d+\.attn\.)q(\.weight|\.bias)', key)
            parts = [f'{first[1]}{part}{first[2]}' for part in 'qkv'] if first else []
            if parts and all(part in state for part in parts):
                fused[f'{first[1]}qkv{first[2]}'] = torch.cat([fused.pop(part) for part in parts])
        return super().convert(fused)

    def finish(self, x: Tensor) -> Tensor:
        """(B,C,H,W) to (B,1+N,C), the class token first."""
        tokens = map_to_tokens(x)
        if self.cls_token is not None:
            class_token = self.cls_token.expand(tokens.shape[0], -1, -1)
            tokens = self.cls_attn_blocks(torch.cat((class_token, tokens), dim=1))
        return self.norm(tokens)

    def pool(self, x: Tensor) -> Tensor:
        return x[:, 0]

    def normalise(self, feature_map: Tensor, is_last: bool) -> Tensor:
        return self.norm(feature_map.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def remove_final_layers(self, norm: bool, head: bool) -> None:
        if norm:
            self.norm = nn.Identity()
        if head:
            self.cls_token, self.cls_attn_blocks = None, nn.Identity()


class LatentMean(FinalLayers):
    """BiXT's: the mean of the latents, and a norm."""

    reads_latents = True

    def add_final_layers(self, in_channels: int) -> None:
        self.fc_norm = nn.LayerNorm(in_channels, eps=1e-6)

    def pool(self, x: Tensor) -> Tensor:
        return self.fc_norm(x.mean(dim=1))

    def remove_final_layers(self, norm: bool, head: bool) -> None:
        if norm or head:
            self.fc_norm = nn.Identity()
        if head:  # then nothing uses the latents of the last layer
            self.blocks[-1].remove_latent_update()


class BatchNormMean(FinalLayers):
    """BiFormer's: a batch norm of the last feature map, and its mean over all positions."""

    def add_final_layers(self, in_channels: int) -> None:
        self.norm = nn.BatchNorm2d(in_channels)

    def finish(self, x: Tensor) -> Tensor:
        return self.norm(x)

    def normalise(self, feature_map: Tensor, is_last: bool) -> Tensor:
        return self.norm(feature_map) if is_last else feature_map

    def remove_final_layers(self, norm: bool, head: bool) -> None:
        if norm:
            self.norm = nn.Identity()
