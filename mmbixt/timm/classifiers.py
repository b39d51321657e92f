"""The classifiers of the four families."""

import re
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

import torch
from timm.models import register_notrace_module
from torch import Tensor, nn

from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT, biformer, bisa_swin, bixt_layers, xcit
from mmbixt.checkpoints.state_dict import rename, unwrap
from mmbixt.layers import (
    ClassAttentionLayer,
    FourierPositionEncoding,
    LinearPatchEmbed,
    map_to_tokens,
    tokens_to_map,
)
from mmbixt.layers.initialise import init_linear
from mmbixt.timm.contract import Classifier


class BiXTClassifier(Classifier, BiXT):
    """The mean of BiXT's latents, a norm, a linear layer."""

    options = dict(latent_layer=True)
    final_norm = 'fc_norm'
    may_be_missing = rf'head\.|{BiXT.may_be_missing}'

    def add_final_layers(self) -> None:
        self.fc_norm = nn.LayerNorm(self.num_features, eps=1e-6)

    def describe_features(self) -> list[dict[str, Any]]:
        layer = dict(num_chs=self.num_features, reduction=self.patch_stride)
        return [dict(layer, module=f'blocks.{i}') for i in range(self.num_bidirectional)]

    def run(self, x: Tensor, take: Collection[int], count: int | None) -> tuple[Tensor, list]:
        """The output are the latents (B,M,C)."""
        tokens, grid = self.tokenize(x)
        latents, maps = self.latents, []
        for i, layer in enumerate(islice(self.blocks, count)):
            latents, tokens = self.run_layer(layer, latents, tokens, grid)
            if i in take:
                maps.append(tokens_to_map(tokens, grid))
        return latents, maps

    def finish(self, x: Tensor) -> Tensor:
        return x

    def pool(self, x: Tensor) -> Tensor:
        return self.fc_norm(x.mean(dim=1))

    def cut(self, count: int, prune_head: bool) -> None:
        if prune_head or count < self.num_bidirectional:
            self.blocks, self.num_bidirectional = self.blocks[:count], count
        if prune_head:  # then nothing uses the latents of the last layer
            self.fc_norm = nn.Identity()
            self.with_latents = False
            self.blocks[-1].self_attention_latents = None
            self.blocks[-1].cross_attention_latents_token.remove_latent_update()

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        blocks = [(r'^blocks\.(\d+)', None), (r'^fc_norm', (99999,))]
        return dict(stem=r'^latents|patch_embed|fourier_pos_encode', blocks=blocks)


class XCiTClassifier(Classifier, XCiT):
    """A class token that attends to XCiT's tokens in two layers, a norm, a linear layer."""

    pools = ('token', '')
    no_decay = ('cls_token',)
    may_be_missing = r'head\.'

    def add_final_layers(self) -> None:
        channels, heads = self.num_features, self.arch['num_heads']
        sizes = (channels, heads, int(channels * self.arch['mlp_ratio']), self.arch['layer_scale'])
        # as in the authors' nano models, which are the only ones of this width
        tokens_norm = channels != 128
        self.cls_token = nn.Parameter(torch.empty(1, 1, channels))
        layers = (ClassAttentionLayer(*sizes, tokens_norm) for _ in range(2))
        self.cls_attn_blocks = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        self.cls_attn_blocks.apply(init_linear)

    def describe_features(self) -> list[dict[str, Any]]:
        layer = dict(num_chs=self.num_features, reduction=self.patch_size)
        return [dict(layer, module=f'blocks.{i}') for i in range(len(self.blocks))]

    def run(self, x: Tensor, take: Collection[int], count: int | None) -> tuple[Tensor, list]:
        """The output is a feature map (B,C,H,W)."""
        x = self.patch_embed(self.prepare(x))
        height, width = x.shape[-2:]
        tokens = map_to_tokens(x + self.pos_embeder(height, width, x.device, x.dtype))
        grid, maps = (height, width), []
        for i, layer in enumerate(islice(self.blocks, count)):
            tokens = self.run_layer(layer, tokens, grid)
            if i in take:
                maps.append(tokens_to_map(tokens, grid))
        return tokens_to_map(tokens, grid), maps

    def finish(self, x: Tensor) -> Tensor:
        """(B,C,H,W) to (B,1+N,C), the class token first."""
        tokens = map_to_tokens(x)
        if self.cls_token is not None:
            class_token = self.cls_token.expand(tokens.shape[0], -1, -1)
            tokens = self.cls_attn_blocks(torch.cat((class_token, tokens), dim=1))
        return self.norm(tokens)

    def pool(self, x: Tensor) -> Tensor:
        return x[:, 0]

    def normalise(self, feature_map: Tensor, layer: int) -> Tensor:
        return self.norm(feature_map.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def cut(self, count: int, prune_head: bool) -> None:
        self.blocks = self.blocks[:count]
        if prune_head:
            self.cls_token, self.cls_attn_blocks = None, nn.Identity()

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        last = r'^(?:cls_attn_blocks|norm)'
        blocks = [(r'^blocks\.(\d+)', None), (last, (99999,))]
        return dict(stem=r'^cls_token|patch_embed|pos_embeder', blocks=blocks)


class OfStages(Classifier):
    """For families of four stages: a norm of the last feature map, its mean, a linear layer."""

    options = dict(out_indices=(-1,))

    def describe_features(self) -> list[dict[str, Any]]:
        last, channels = len(self.stages) - 1, self.num_features
        return [
            dict(num_chs=channels >> (last - i), reduction=4 << i, module=f'stages.{i}')
            for i in range(last + 1)
        ]

    def finish(self, x: Tensor) -> Tensor:
        return self.normalise(x, len(self.stages) - 1)

    def pool(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))

    def cut(self, count: int, prune_head: bool) -> None:
        self.stages = self.stages[:count]


class BiFormerClassifier(OfStages, BiFormer):
    """BiFormer, a batch norm, the mean, a linear layer."""

    options = dict(OfStages.options, output_norms=False, num_regions=7)
    may_be_missing = rf'head\.|{BiFormer.may_be_missing}'

    def add_final_layers(self) -> None:
        self.norm = nn.BatchNorm2d(self.num_features)

    def run(self, x: Tensor, take: Collection[int], count: int | None) -> tuple[Tensor, list]:
        x, maps = self.prepare(x), []
        parts = zip(self.downsample_layers, self.stages, strict=True)
        for i, (downsample, stage) in enumerate(islice(parts, count)):
            x = stage(downsample(x).permute(0, 2, 3, 1), self.run_layer).permute(0, 3, 1, 2)
            if i in take:
                maps.append(x)
        return x, maps

    def normalise(self, feature_map: Tensor, layer: int) -> Tensor:
        return self.norm(feature_map) if layer == len(self.stages) - 1 else feature_map

    def cut(self, count: int, prune_head: bool) -> None:
        super().cut(count, prune_head)
        self.downsample_layers = self.downsample_layers[:count]

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        fine = [
            (r'^downsample_layers\.(\d+)', (0,)),  # with the first block
            (r'^stages\.(\d+)\.(\d+)', None),
            (r'^norm', (99999,)),
        ]
        both = r'^(?:downsample_layers|stages)\.(\d+)'
        return dict(stem=r'^downsample_layers\.0', blocks=both if coarse else fine)


class BiSASwinClassifier(OfStages, BiSASwin):
    """BiSA-Swin, a norm, the mean, a linear layer; the names of the weights are mmpretrain's."""

    options = dict(OfStages.options, shift_single_window=False)
    final_norm = 'norm3'
    no_decay = ('relative_position_bias_table', 'lam_logit')
    may_be_missing = rf'head\.|{BiSASwin.may_be_missing}'

    def run(self, x: Tensor, take: Collection[int], count: int | None) -> tuple[Tensor, list]:
        x, maps = self.patch_embed(self.prepare(x)), []
        for i, stage in enumerate(islice(self.stages, count)):
            x, out = stage(x, self.run_layer)
            if i in take:
                maps.append(out.permute(0, 3, 1, 2))
        return out.permute(0, 3, 1, 2), maps

    def normalise(self, feature_map: Tensor, layer: int) -> Tensor:
        if layer < len(self.stages) - 1:
            return feature_map
        return self.norm3(feature_map.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def cut(self, count: int, prune_head: bool) -> None:
        super().cut(count, prune_head)
        self.stages[-1].downsample = None  # of the next stage

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        fine = [
            (r'^stages\.(\d+)\.downsample', (99999,)),  # after the blocks
            (r'^stages\.(\d+)\.blocks\.(\d+)', None),
            (r'^norm3', (99999,)),
        ]
        return dict(stem=r'^patch_embed', blocks=r'^stages\.(\d+)' if coarse else fine)


CLASSIFIERS = {
    'BiXT': BiXTClassifier,
    'XCiT': XCiTClassifier,
    'BiFormer': BiFormerClassifier,
    'BiSASwin': BiSASwinClassifier,
}

# steps of a graph by torch.fx, which cannot trace a choice by sizes
for _module in (
    *(FourierPositionEncoding, LinearPatchEmbed, bixt_layers.Layer, bixt_layers.LatentLayer),
    *(xcit.Layer, ClassAttentionLayer, biformer.Block),
    *(bisa_swin.PatchEmbed, bisa_swin.PatchMerging, bisa_swin.SwinBlock),
):
    register_notrace_module(_module)


def checkpoint_filter_fn(state: Mapping[str, Any], model: Classifier) -> dict[str, Tensor]:
    """The weights of a file of the authors, or of mmpretrain's ``ImageClassifier``, for a model."""

    def new_name(key: str) -> str:
        key = re.sub(r'^head\.fc\.', 'head.', re.sub(r'^(backbone|neck)\.', '', key))
        return re.sub(r'^norm\.', f'{model.final_norm}.', key)

    return model.convert(rename(unwrap(state), new_name))
