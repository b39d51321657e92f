"""BiXT: Perceiving Longer Sequences With Bi-Directional Cross-Attention Transformers (2024).

A few latents and all tokens attend to each other through one similarity matrix in each layer, so
that the cost is linear in the tokens. The names of the weights are the authors'.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import torch
from timm.layers import LayerScale, lecun_normal_
from torch import Tensor, nn

from mmbixt.attention import BidirectionalAttention, LatentAttention
from mmbixt.backbones.arch import (
    check_choice,
    check_positive,
    check_rate,
    resolve_arch,
    resolve_out_indices,
)
from mmbixt.backbones.base import DenseBackbone, Parts, State
from mmbixt.checkpoints.state_dict import rename
from mmbixt.layers import (
    ConvPatchEmbed,
    DropPath,
    FourierPositionEncoding,
    LinearPatchEmbed,
    LocalPatchInteraction,
    Mlp,
    SelfAttention,
    map_to_tokens,
    residual,
    tokens_to_map,
)
from mmbixt.optional import MODELS

ARCHS = {
    'tiny': dict(embed_dims=192, num_heads=6, depth=12),
    'small': dict(embed_dims=384, num_heads=12, depth=12),
    # Published with 12 layers only, of which the last one does not update the tokens.
    'd256': dict(embed_dims=256, num_heads=8, depth=11),
    'd256-ls': dict(embed_dims=256, num_heads=8, depth=11, layer_scale=1e-5),
}
ARCH_DEFAULTS = dict(mlp_ratio=4, layer_scale=None)

PATCH_EMBEDS = {'linear': LinearPatchEmbed, 'conv': ConvPatchEmbed}

# in the authors' files: the classifier, and the grid of positions
NOT_USED = re.compile(r'(fc_norm|head)\.|fourier_pos_encode\.pos$')
LATENT_UPDATE = re.compile(r'\.(self_attention_latents|attn\.proj_lat|\w+_lat)\.')
LAYER = re.compile(r'blocks\.(\d+)\.')


class SelfAttentionBlock(nn.Module):
    """Of the latents: ``x + attention(norm(x))``, then ``x + mlp(norm(x))``.

    ``hidden`` is the width of the MLP between its two layers, ``scale`` the initial value of the
    layer scales, None for no layer scale.
    """

    def __init__(
        self, channels: int, num_heads: int, hidden: int, scale: float | None, drop_path: float
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels, eps=1e-6)
        self.attn = SelfAttention(channels, num_heads)
        self.ls1 = make_layer_scale(channels, scale)
        self.norm2 = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = Mlp(channels, hidden)
        self.ls2 = make_layer_scale(channels, scale)
        self.drop_path = DropPath(drop_path)

    def forward(self, latents: Tensor) -> Tensor:
        """(B,M,C) to (B,M,C)."""

        def attend(x: Tensor) -> Tensor:
            return self.ls1(self.attn(self.norm1(x)))

        def widen(x: Tensor) -> Tensor:
            return self.ls2(self.mlp(self.norm2(x)))

        return residual(residual(latents, attend, self.drop_path), widen, self.drop_path)


class CrossAttentionBlock(nn.Module):
    """Bidirectional cross-attention, then an MLP on either side; norms before, residuals around.

    The tokens attend to the latents from before the block, not to the updated latents. The
    arguments are those of :class:`SelfAttentionBlock`; without ``update_latents`` only tokens are
    updated.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        hidden: int,
        scale: float | None,
        drop_path: float,
        update_latents: bool,
    ) -> None:
        super().__init__()
        self.update_latents = update_latents
        self.norm1_lat = nn.LayerNorm(channels, eps=1e-6)
        self.norm1_pat = nn.LayerNorm(channels, eps=1e-6)
        self.attn = BidirectionalAttention(channels, num_heads, update_latents)
        self.ls1_pat = make_layer_scale(channels, scale)
        self.norm2_pat = nn.LayerNorm(channels, eps=1e-6)
        self.mlp_pat = Mlp(channels, hidden)
        self.ls2_pat = make_layer_scale(channels, scale)
        if update_latents:
            self.ls1_lat = make_layer_scale(channels, scale)
            self.norm2_lat = nn.LayerNorm(channels, eps=1e-6)
            self.mlp_lat = Mlp(channels, hidden)
            self.ls2_lat = make_layer_scale(channels, scale)
        self.drop_path = DropPath(drop_path)

    def forward(self, latents: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Latents (B,M,C) or (1,M,C) and tokens (B,N,C) to both, (B,M,C) and (B,N,C)."""
        for_latents, for_tokens = self.attn(self.norm1_lat(latents), self.norm1_pat(tokens))
        tokens = tokens + self.drop_path(self.ls1_pat(for_tokens))
        tokens = residual(tokens, self._widen_tokens, self.drop_path)
        if self.update_latents:
            latents = latents + self.drop_path(self.ls1_lat(for_latents))
            latents = residual(latents, self._widen_latents, self.drop_path)
        return latents, tokens

    def _widen_tokens(self, x: Tensor) -> Tensor:
        return self.ls2_pat(self.mlp_pat(self.norm2_pat(x)))

    def _widen_latents(self, x: Tensor) -> Tensor:
        return self.ls2_lat(self.mlp_lat(self.norm2_lat(x)))


class Layer(nn.Module):
    """Bidirectional cross-attention, self-attention of the latents, LPI of the tokens if set."""

    def __init__(
        self,
        channels: int,
        num_heads: int,
        hidden: int,
        scale: float | None,
        drop_path: float,
        update_latents: bool,
        token_refiner: str | None,
    ) -> None:
        super().__init__()
        sizes = (channels, num_heads, hidden, scale, drop_path)
        self.cross_attention_latents_token = CrossAttentionBlock(*sizes, update_latents)
        self.self_attention_latents = SelfAttentionBlock(*sizes) if update_latents else None
        self.local_patch_interaction = None
        if token_refiner == 'lpi':
            self.local_patch_interaction = ResidualLPI(channels, scale, drop_path)

    def forward(
        self, latents: Tensor, tokens: Tensor, grid: tuple[int, int]
    ) -> tuple[Tensor, Tensor]:
        """Latents (B,M,C) or (1,M,C) and tokens (B,N,C) of a grid (H,W) to both, updated."""
        latents, tokens = self.cross_attention_latents_token(latents, tokens)
        if self.self_attention_latents is not None:
            latents = self.self_attention_latents(latents)
        if self.local_patch_interaction is not None:
            tokens = self.local_patch_interaction(tokens, grid)
        return latents, tokens


class LatentCrossAttentionBlock(nn.Module):
    """:class:`CrossAttentionBlock` without the tokens' update."""

    def __init__(
        self, channels: int, num_heads: int, hidden: int, scale: float | None, drop_path: float
    ) -> None:
        super().__init__()
        self.norm1_lat = nn.LayerNorm(channels, eps=1e-6)
        self.norm1_pat = nn.LayerNorm(channels, eps=1e-6)
        self.attn = LatentAttention(channels, num_heads)
        self.ls1_lat = make_layer_scale(channels, scale)
        self.norm2_lat = nn.LayerNorm(channels, eps=1e-6)
        self.mlp_lat = Mlp(channels, hidden)
        self.ls2_lat = make_layer_scale(channels, scale)
        self.drop_path = DropPath(drop_path)

    def forward(self, latents: Tensor, tokens: Tensor) -> Tensor:
        """Latents (B,M,C) and tokens (B,N,C) to latents (B,M,C)."""
        update = self.attn(self.norm1_lat(latents), self.norm1_pat(tokens))
        latents = latents + self.drop_path(self.ls1_lat(update))
        return residual(latents, self._widen, self.drop_path)

    def _widen(self, x: Tensor) -> Tensor:
        return self.ls2_lat(self.mlp_lat(self.norm2_lat(x)))


class LatentLayer(nn.Module):
    """The last layer of a classifier: it updates only the latents, whose mean is classified."""

    def __init__(
        self, channels: int, num_heads: int, hidden: int, scale: float | None, drop_path: float
    ) -> None:
        super().__init__()
        sizes = (channels, num_heads, hidden, scale, drop_path)
        self.cross_attention_latents_token = LatentCrossAttentionBlock(*sizes)
        self.self_attention_latents = SelfAttentionBlock(*sizes)

    def forward(
        self, latents: Tensor, tokens: Tensor, grid: tuple[int, int]
    ) -> tuple[Tensor, Tensor]:
        """Latents (B,M,C) and tokens (B,N,C) to updated latents and the same tokens."""
        latents = self.cross_attention_latents_token(latents, tokens)
        return self.self_attention_latents(latents), tokens


class ResidualLPI(nn.Module):
    """XCiT's local patch interaction with a norm before and a residual around it."""

    def __init__(self, channels: int, scale: float | None, drop_path: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.lpi = LocalPatchInteraction(channels)
        self.ls = make_layer_scale(channels, scale)
        self.drop_path = DropPath(drop_path)

    def forward(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        """Tokens (B,N,C) of a grid (H,W) to (B,N,C)."""
        return tokens + self.drop_path(self.ls(self.lpi(self.norm(tokens), grid)))


def make_layer_scale(channels: int, init: float | None) -> nn.Module:
    return nn.Identity() if init is None else LayerScale(channels, init)


@MODELS.register_module()
class BiXT(DenseBackbone):
    """Bi-directional cross-attention transformer for dense prediction.

    Only layers that update tokens *and* latents are built, up to the last of ``out_indices``. The
    last one has no update of the latents, because nothing uses it.

    Args:
        arch: 'tiny' (width 192), 'small' (384), 'd256' or 'd256-ls' (256, the latter with layer
            scale), or a dict with ``embed_dims``, ``num_heads``, ``depth`` and optionally
            ``mlp_ratio`` (4) and ``layer_scale`` (None, or its initial value).
        depth: number of layers; default: that of ``arch``. A published checkpoint of n layers
            loads into ``depth = n - 1``, because its last layer updates only the latents.
        num_latents: number of latents M.
        patch_stride: 16, 8 or 4 pixels from token to token.
        patch_embed: 'linear' (patches of 16 x 16 pixels, overlapping for strides below 16) or
            'conv' (the convolutional tokeniser).
        token_refiner: None, or 'lpi' for XCiT's local patch interaction after each layer, the
            paper's "+LPI".
        out_indices: layers (from 0; negative ones from the end) whose tokens are returned.
            Default: after a third, a half, two thirds and all of them, (3, 5, 7, 11) of 12.
        with_latents: also build the last layer's latent update and return the latents.
        latent_layer: also build the authors' last layer, which updates only the latents, after
            ``depth`` others, and return the latents, as classifiers need them.
        drop_path_rate: stochastic depth, growing linearly from 0 at the first layer to this rate
            at layer ``depth``, the authors' last one, which only classifiers have.
        drop_path: how stochastic depth drops the update of an image. 'mask' multiplies it with 0;
            'skip' does not compute it, in batches of 8 or more images, which saves time, for the
            same results (on a GPU of another draw).
        frozen_stages: -1 freezes nothing, 0 the tokeniser, position encoding and latents, k the
            first k layers too.
        in_channels, norm_eval, with_cp, init_cfg: see :class:`mmbixt.backbones.base.DenseBackbone`.
    """

    # no published file has the local patch interaction of the paper's "+LPI"
    may_be_missing = r'blocks\.\d+\.local_patch_interaction\.'
    neck_in_classifier = (r'^fc_norm\.', 'neck.fc_norm.')

    def __init__(
        self,
        arch: str | Mapping = 'tiny',
        depth: int | None = None,
        num_latents: int = 64,
        patch_stride: int = 16,
        patch_embed: str = 'linear',
        token_refiner: str | None = None,
        out_indices: Sequence[int] | None = None,
        with_latents: bool = False,
        latent_layer: bool = False,
        drop_path_rate: float = 0.0,
        drop_path: str = 'mask',
        in_channels: int = 3,
        frozen_stages: int = -1,
        norm_eval: bool = False,
        with_cp: bool = False,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(frozen_stages, norm_eval, with_cp, init_cfg, in_channels)
        self.arch = resolve_arch('BiXT', arch, ARCHS, ARCH_DEFAULTS, depth=depth)
        check_choice('patch_stride', patch_stride, (16, 8, 4))
        check_choice('patch_embed', patch_embed, PATCH_EMBEDS)
        check_choice('token_refiner', token_refiner, (None, 'lpi'))
        check_positive('num_latents', num_latents)
        check_rate('drop_path_rate', drop_path_rate)
        self.patch_stride = patch_stride
        self.out_indices = resolve_out_indices(out_indices, self.arch['depth'])
        self.with_latents = with_latents or latent_layer
        channels = self.arch['embed_dims']
        self.out_channels = (channels,) * len(self.out_indices)
        self.out_strides = (patch_stride,) * len(self.out_indices)

        self.latents = nn.Parameter(torch.empty(1, num_latents, channels))
        self.patch_embed = PATCH_EMBEDS[patch_embed](channels, patch_stride, in_channels)
        self.fourier_pos_encode = FourierPositionEncoding(channels)
        hidden = int(channels * self.arch['mlp_ratio'])
        sizes = (channels, self.arch['num_heads'], hidden, self.arch['layer_scale'])
        depth = self.arch['depth']
        last = depth - 1 if latent_layer else max(self.out_indices)
        self.blocks = nn.ModuleList()
        for i in range(last + 1):
            rate = drop_path_rate * i / depth
            self.blocks.append(Layer(*sizes, rate, i < last or self.with_latents, token_refiner))
        self.num_bidirectional = len(self.blocks)
        if latent_layer:
            self.blocks.append(LatentLayer(*sizes, drop_path_rate))
        self.reset_parameters()
        self.set_drop_path(drop_path)
        self.freeze()

    def reset_parameters(self) -> None:
        """The authors' initialisation, which timm calls 'jax'."""
        nn.init.trunc_normal_(self.latents, std=0.02)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                is_mlp = name.endswith(('.fc1', '.fc2'))
                nn.init.normal_(module.bias, std=1e-6 if is_mlp else 0.0)
            elif isinstance(module, nn.Conv2d):
                lecun_normal_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, ...] | tuple[tuple[Tensor, ...], Tensor]:
        """Images (B,3,H,W) to feature maps (B,C,ceil(H/stride),ceil(W/stride)), per out index.

        With ``with_latents`` or ``latent_layer``: the feature maps and the latents (B,M,C).
        """
        tokens, grid = self.tokenize(x)
        latents = self.latents
        feature_maps = []
        for i, layer in enumerate(self.blocks):
            latents, tokens = self.run_layer(layer, latents, tokens, grid)
            if i in self.out_indices:
                feature_maps.append(tokens_to_map(tokens, grid))
        return (tuple(feature_maps), latents) if self.with_latents else tuple(feature_maps)

    def tokenize(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """An image (B,3,H,W) to tokens with their position encoding (B,N,C), and their grid."""
        x = self.prepare(x)
        height, width = x.shape[-2:]
        if min(height, width) < 16:
            raise ValueError(
                f'An image of {height} x {width} pixels is too small: a patch has 16 x 16.'
            )
        feature_map = self.patch_embed(x)
        grid = tuple(feature_map.shape[-2:])
        position = self.fourier_pos_encode(*grid, feature_map.device, feature_map.dtype)
        return map_to_tokens(feature_map + position), grid

    def attention_maps(
        self, x: Tensor, layers: Iterable[int] | None = None
    ) -> dict[int, tuple[Tensor, Tensor]]:
        """For pictures: the attention of some layers (default: all) on images (B,3,H,W).

        The ``latent_layer`` is not one of them: in it only the latents attend.

        Returns:
            For each layer two tensors (B,h,M,H',W') on the grid of the tokens: each latent's
            attention over the tokens, and each token's over the latents.
        """
        indices = range(self.num_bidirectional) if layers is None else layers
        attentions = {i: self.blocks[i].cross_attention_latents_token.attn for i in indices}
        grid = tuple(-(-side // self.patch_stride) for side in x.shape[-2:])

        def read(_: int, attention: BidirectionalAttention, inputs: tuple) -> tuple[Tensor, Tensor]:
            over_tokens, over_latents = attention.attention_maps(*inputs)
            return over_tokens.unflatten(-1, grid), over_latents.unflatten(-1, grid)

        return self.record(x, attentions, read)

    def freezable_stages(self) -> list[Parts]:
        stem = [self.patch_embed, self.fourier_pos_encode, self.latents]
        return [stem, *([layer] for layer in self.blocks)]

    def convert(self, state: State) -> dict[str, Tensor]:
        """From the authors' classifiers.

        Left out are the classifier, a stored grid of positions, which is computed here, layers
        beyond those of this network (among them the last one of a file, which updates only the
        latents), and the update of the latents in the last layer of a network that has none.
        """
        expected, last = self.state_dict(), len(self.blocks) - 1

        def new_name(key: str) -> str | None:
            layer = LAYER.match(key)
            if layer is None:
                is_dropped = NOT_USED.match(key) is not None
            else:
                is_last = int(layer[1]) == last and LATENT_UPDATE.search(key)
                is_dropped = int(layer[1]) > last or is_last
            return None if is_dropped and key not in expected else key

        return rename(state, new_name)
