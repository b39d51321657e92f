"""XCiT: Cross-Covariance Image Transformers (2021).

Channels attend to each other by their correlation over all tokens, so that the cost is linear in
the tokens; local patch interaction combines neighbours. The names of the weights are the authors'.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmbixt.attention import CrossCovarianceAttention
from mmbixt.backbones.arch import check_choice, resolve_arch, resolve_out_indices
from mmbixt.backbones.base import DenseBackbone, LayerInfo, Parts, State
from mmbixt.backbones.final_layers import ClassAttention
from mmbixt.checkpoints.state_dict import rename
from mmbixt.layers import (
    ConvPatchEmbed,
    DropPath,
    FourierPositionEncoding,
    LocalPatchInteraction,
    Mlp,
    map_to_tokens,
    tokens_to_map,
)
from mmbixt.layers.initialise import init_linear

# Layer scales start at 1 in 12 layers and at 1e-5 in 24; for stochastic depth see Table B.1.
ARCHS = {
    'nano12': dict(embed_dims=128, num_heads=4, depth=12, tokens_norm=False),
    'tiny12': dict(embed_dims=192, num_heads=4, depth=12),
    'tiny24': dict(embed_dims=192, num_heads=4, depth=24, layer_scale=1e-5, drop_path_rate=0.05),
    'small12': dict(embed_dims=384, num_heads=8, depth=12, drop_path_rate=0.05),
    'small24': dict(embed_dims=384, num_heads=8, depth=24, layer_scale=1e-5, drop_path_rate=0.1),
    'medium24': dict(embed_dims=512, num_heads=8, depth=24, layer_scale=1e-5, drop_path_rate=0.15),
    'large24': dict(embed_dims=768, num_heads=16, depth=24, layer_scale=1e-5, drop_path_rate=0.25),
}
# tokens_norm: of the class-attention layers, see mmbixt.layers.ClassAttentionLayer
ARCH_DEFAULTS = dict(mlp_ratio=4, layer_scale=1.0, drop_path_rate=0.0, tokens_norm=True)

# In the authors' files: the classifier, and in those of dense models the operations that make a
# pyramid, which are of FeaturePyramidAdapter here.
NOT_USED = re.compile(r'(cls_token$|cls_attn_blocks\.|norm\.|head\.|fpn\d\.)')
LAYER = re.compile(r'blocks\.(\d+)\.')
PYRAMID = re.compile(r'^backbone\.(?=fpn\d\.)')


class Layer(nn.Module):
    """Cross-covariance attention, local patch interaction, MLP, in this order.

    For each part: ``x + gamma * part(norm(x))``. Norms and scales have the authors' numbers, which
    do not follow this order: 1, 3, 2.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        hidden: int,
        layer_scale: float,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels, eps=1e-6)
        self.attn = CrossCovarianceAttention(channels, num_heads)
        self.norm2 = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = Mlp(channels, hidden)
        self.norm3 = nn.LayerNorm(channels, eps=1e-6)
        self.local_mp = LocalPatchInteraction(channels)
        self.gamma1, self.gamma2, self.gamma3 = (
            nn.Parameter(torch.full((channels,), float(layer_scale))) for _ in range(3)
        )
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """Tokens (B,N,C) of a grid (H,W) to (B,N,C)."""
        x = x + self.drop_path(self.gamma1 * self.attn(self.norm1(x)))
        x = x + self.drop_path(self.gamma3 * self.local_mp(self.norm3(x), grid))
        return x + self.drop_path(self.gamma2 * self.mlp(self.norm2(x)))


class XCiT(DenseBackbone):
    """Cross-covariance image transformer for dense prediction.

    All feature maps have the same stride; ``mmbixt.FeaturePyramidAdapter`` makes a pyramid of them.
    The class-attention layers, which only a classifier needs, are not built, nor are layers after
    the last of ``out_indices``.

    Args:
        arch: 'nano12', 'tiny12', 'tiny24', 'small12', 'small24', 'medium24', 'large24' (width and
            depth), or a dict with ``embed_dims``, ``num_heads``, ``depth`` and optionally
            ``mlp_ratio`` (4), ``layer_scale`` (1.0), ``drop_path_rate`` (0.0) and, for classifiers,
            ``tokens_norm`` (True).
        patch_size: 16 or 8, pixels from token to token.
        out_indices: layers (from 0; negative ones from the end) whose tokens are returned.
            Default: after a third, a half, two thirds and all of them, (3, 5, 7, 11) of 12.
        layer_scale: initial value of the layer scales; default: the published one of ``arch``.
        drop_path_rate: stochastic depth, the same in all layers; default: the published rate.
        options: ``in_channels``, ``frozen_stages``, ``norm_eval``, ``with_cp`` and ``init_cfg``
            of :class:`mmbixt.backbones.base.DenseBackbone`. Stage 0 is the patch embedding
            and position encoding, each further one a layer.
    """

    weight_names = r'cls_attn_blocks|pos_embeder\.|blocks\.\d+\.local_mp\.'
    final_layers = ClassAttention
    in_classifier = dict()
    crop_pct = 1.0
    no_decay = ('cls_token',)
    neck_in_classifier = (r'^(cls_token$|cls_attn_blocks\.|norm\.)', r'neck.\1')

    def __init__(
        self,
        arch: str | Mapping = 'small12',
        patch_size: int = 16,
        out_indices: Sequence[int] | None = None,
        layer_scale: float | None = None,
        drop_path_rate: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_choice('patch_size', patch_size, (16, 8))
        if (arch, patch_size, drop_path_rate) == ('large24', 8, None):
            drop_path_rate = 0.3  # the one rate that differs between patch sizes
        overrides = dict(layer_scale=layer_scale, drop_path_rate=drop_path_rate)
        self.arch = resolve_arch('XCiT', arch, ARCHS, ARCH_DEFAULTS, **overrides)
        self.patch_size = patch_size
        self.out_indices = resolve_out_indices(out_indices, self.arch['depth'])
        channels = self.arch['embed_dims']

        self.patch_embed = ConvPatchEmbed(channels, patch_size, self.in_channels)
        self.pos_embeder = FourierPositionEncoding(channels)
        hidden = int(channels * self.arch['mlp_ratio'])
        scale_and_rate = (self.arch['layer_scale'], self.arch['drop_path_rate'])
        self.blocks = nn.ModuleList(
            Layer(channels, self.arch['num_heads'], hidden, *scale_and_rate)
            for _ in range(max(self.out_indices) + 1)
        )
        self.apply(init_linear)  # the authors' initialisation; other layers keep torch's
        self.finish_init()

    def stem(self) -> Parts:
        return [self.patch_embed, self.pos_embeder]

    def embed(self, image: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Tokens (B,N,C) and their grid (H,W)."""
        x = self.pos_embeder(self.patch_embed(image))
        return map_to_tokens(x), tuple(x.shape[2:])

    def layer_list(self) -> list[LayerInfo]:
        sizes = self.arch['embed_dims'], self.patch_size
        return [
            LayerInfo(f'blocks.{i}', block, *sizes, map_index=i)
            for i, block in enumerate(self.blocks)
        ]

    def step(self, layer: LayerInfo, state: tuple[Tensor, tuple]) -> tuple[Tensor, tuple]:
        tokens, grid = state
        return self.run_layer(layer.module, tokens, grid), grid

    def feature_map(self, state: tuple[Tensor, tuple], norm: None = None) -> Tensor:
        return tokens_to_map(*state)

    def final_options(self) -> dict[str, Any]:
        names = 'num_heads', 'mlp_ratio', 'layer_scale', 'tokens_norm'
        return {name: self.arch[name] for name in names}

    @staticmethod
    def rename_whole(state: State) -> State:
        """A whole model of the authors' dense code (mmcv 1.x).

        The operations that make a pyramid are in their backbone, and here in the first part of the
        neck, ``neck=[FeaturePyramidAdapter, FPN]``; as the whole neck, the adapter accepts these
        names, too. Heads are the stock ones in both.
        """
        is_xcit = 'backbone.pos_embeder.token_projection.weight' in state  # others have fpn, too
        if not is_xcit or not any(PYRAMID.match(key) for key in state):
            return state
        return rename(state, lambda key: PYRAMID.sub('neck.0.', re.sub(r'^neck\.', 'neck.1.', key)))

    def convert(self, state: State) -> dict[str, Tensor]:
        """From the authors' files of classifiers and dense models, and timm's.

        Layers that no output needs are left out.
        """
        expected = self.state_dict()

        def new_name(key: str) -> str | None:
            name = re.sub(r'^pos_embed\.', 'pos_embeder.', key)  # timm's to the authors'
            layer = LAYER.match(name)
            is_later = layer and len(self.blocks) <= int(layer[1]) < self.arch['depth']
            is_needed = name in expected or not (NOT_USED.match(name) or is_later)
            return name if is_needed else None

        return rename(state, new_name)
