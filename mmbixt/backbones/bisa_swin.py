"""BiSA: Bi-Directional Self-Attention for Vision Transformers, in a Swin Transformer.

In each window of the first stage inverse self-attention runs in parallel with self-attention.
Without it (``bisa_stages=()``) this is a Swin Transformer. The names of the weights are those of
OpenMMLab's Swin Transformer.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from mmbixt.attention.inverse import (
    BidirectionalWindowAttention,
    InverseAttention,
    check_options,
)
from mmbixt.attention.windows import WindowAttention, Windows, relative_position_index
from mmbixt.backbones.arch import resolve_arch, resolve_out_indices
from mmbixt.backbones.base import DenseBackbone, LayerInfo, Parts, State
from mmbixt.backbones.final_layers import FinalLayers
from mmbixt.checkpoints.state_dict import rename
from mmbixt.layers import DropPath, FeedForward
from mmbixt.layers.initialise import init_linear
from mmbixt.layers.sizes import extend_image, extend_to_multiple

ARCHS = {
    'tiny': dict(embed_dims=96, depths=(2, 2, 6, 2), num_heads=(3, 6, 12, 24)),
    'small': dict(embed_dims=96, depths=(2, 2, 18, 2), num_heads=(3, 6, 12, 24)),
    'base': dict(embed_dims=128, depths=(2, 2, 18, 2), num_heads=(4, 8, 16, 32)),
}
ARCH_DEFAULTS = dict(window_size=7, mlp_ratio=4)

# from the names of weights in Microsoft's and timm's code, and in that of BiSA's authors
RENAMES = (
    (re.compile(r'^layers\.'), 'stages.'),
    (re.compile(r'^patch_embed\.proj\.'), 'patch_embed.projection.'),
    (re.compile(r'(\.blocks\.\d+\.attn)\.(?!w_msa\.)'), r'\1.w_msa.'),
    (re.compile(r'\.w_msa\.local_proj\.'), '.w_msa.isa.q.'),
    (re.compile(r'\.w_msa\.global_proj\.'), '.w_msa.isa.v.'),
    (re.compile(r'\.w_msa\.bias_generator\.weight$'), '.w_msa.isa.B'),
    (re.compile(r'\.w_msa\.G\.weight$'), '.w_msa.isa.G'),
    (re.compile(r'\.w_msa\.selection_lambda$'), '.w_msa.lam_logit'),
    (re.compile(r'\.mlp\.fc1\.'), '.ffn.layers.0.0.'),
    (re.compile(r'\.mlp\.fc2\.'), '.ffn.layers.1.'),
)
STAGE = re.compile(r'stages\.(\d+)\.')
MERGING = re.compile(r'stages\.(\d+)\.downsample\.(norm|reduction)\.')
NOT_USED = re.compile(r'(norm|norm\d+|head)\.')  # the classifier, and norms of other outputs


class PatchEmbed(nn.Module):
    """One token for each 4 x 4 pixels; images are padded with zeros at the right and the bottom."""

    def __init__(self, channels: int, in_channels: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(in_channels, channels, 4, stride=4)
        self.norm = nn.LayerNorm(channels)

    def forward(self, image: Tensor) -> Tensor:
        """(B,3,H,W) to (B,ceil(H/4),ceil(W/4),C)."""
        return self.norm(self.projection(extend_image(image, 4)).permute(0, 2, 3, 1))


class PatchMerging(nn.Module):
    """Four neighbouring tokens become one of twice the width; zeros pad odd sides."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * channels)
        self.reduction = nn.Linear(4 * channels, 2 * channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B,H,W,C) to (B,ceil(H/2),ceil(W/2),2C)."""
        x = extend_to_multiple(x, 2)
        rows, columns = (side // 2 for side in x.shape[1:3])
        x = x.unflatten(2, (columns, 2)).unflatten(1, (rows, 2))
        return self.reduction(self.norm(x.permute(0, 1, 3, 5, 2, 4).flatten(3)))


class ShiftedWindows(nn.Module):
    """Attention within windows, which may be shifted cyclically by half a window."""

    def __init__(self, attention: WindowAttention, shift: int) -> None:
        super().__init__()
        self.shift = shift
        self.w_msa = attention

    def forward(self, x: Tensor, windows: Windows, shift_bias: Tensor | None) -> Tensor:
        """(B,H,W,C) to (B,H,W,C)."""
        return self.w_msa(x, shift_bias, windows)


class SwinBlock(nn.Module):
    """``x + attention(norm(x))``, then ``x + mlp(norm(x))``."""

    def __init__(
        self, channels: int, attention: ShiftedWindows, hidden: int, drop_path: float
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels)
        self.attn = attention
        self.norm2 = nn.LayerNorm(channels)
        self.ffn = FeedForward(channels, hidden)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, windows: Windows, shift_bias: Tensor | None) -> Tensor:
        """(B,H,W,C) to (B,H,W,C)."""
        x = x + self.drop_path(self.attn(self.norm1(x), windows, shift_bias))
        return x + self.drop_path(self.ffn(self.norm2(x)))


def make_windows(
    x: Tensor, size: int, shift: int, shift_single_window: bool
) -> tuple[Windows, Tensor | None]:
    """The windows of feature maps (B,H,W,C), and the bias of their scores.

    Without ``shift_single_window`` windows as large as the shorter side are not shifted.
    """
    if min(x.shape[1:3]) <= size and not shift_single_window:
        shift = 0
    windows = Windows(*x.shape[1:3], size, shift)
    return windows, windows.shift_bias(x)


class NormMean(FinalLayers):
    """The mean of the last feature map, whose norm is the backbone's."""

    def remove_final_layers(self, norm: bool, head: bool) -> None:
        if norm:
            setattr(self, f'norm{self.out_indices[-1]}', nn.Identity())


class BiSASwin(DenseBackbone):
    """Swin Transformer with bi-directional self-attention, for dense prediction.

    Checkpoints of OpenMMLab's, Microsoft's and timm's Swin Transformers load without conversion,
    and those of the repository of BiSA's authors, with ``projection='additive', lam='learned'``;
    none of these are public. To fine-tune, start from a Swin Transformer
    with ``lam='learned', lam_init=0.99``: the share of the new branches is then 1 % at first, and
    is learned. (Exempt ``lam_logit`` from weight decay, which would move ``lam`` towards 0.5.)

    Args:
        arch: 'tiny', 'small' or 'base', or a dict with ``embed_dims`` (the first stage's width,
            doubled by each further one), ``depths`` and ``num_heads`` (per stage) and optionally
            ``window_size`` (7) and ``mlp_ratio`` (4).
        bisa_stages: stages (from 0; negative ones from the end) that have inverse self-attention
            in every block; ``()`` for a plain Swin Transformer.
        lam: share of self-attention: a number from 0 to 1, or 'learned' in each block. 1 is plain
            self-attention, without weights of inverse attention.
        lam_init: initial value of a learned ``lam``, above 0 and below 1.
        branch_norm: None, or 'layer' (as in the authors' code) to normalise both branches before
            they are combined.
        projection: how inverse self-attention projects queries: 'hypernetwork', as in the paper, or
            'additive', as in the authors' code (:mod:`mmbixt.attention.inverse` has both).
        window_size: side of a window in tokens; default: that of ``arch``.
        shift_single_window: whether windows are shifted where one covers a side of the feature map
            (stage 4 at 224 pixels). mmseg's and mmdet's Swin do so; mmpretrain's, Microsoft's and
            timm's do not, and their classifiers are exact only with False.
        out_indices: stages (from 0; negative ones from the end) whose feature maps are returned,
            each through its own norm; default: all. Stages after the last of them are not built.
        drop_path_rate: stochastic depth, growing linearly from 0 at the first block to this rate
            at the last one of all stages. 0.1 is OpenMMLab's default.
        options: ``in_channels``, ``frozen_stages``, ``norm_eval``, ``with_cp`` and ``init_cfg``
            of :class:`mmbixt.backbones.base.DenseBackbone`. Stage 0 of ``frozen_stages`` is
            the patch embedding; the others include the merging after them and their output's norm.
    """

    has_free_sizes = False  # windows are cut by numbers
    # plain Swin Transformers have no inverse attention, and classifiers no norms of the outputs
    may_be_missing = r'norm\d+\.|stages\.\d+\.blocks\.\d+\.attn\.w_msa\.(isa\.|lam_logit$)'
    weight_names = r'relative_position_bias_table'
    pretrained_strict = False  # a training may start from weights of Swin
    final_layers = NormMean
    in_classifier = dict(shift_single_window=False, out_indices=(-1,))
    no_decay = ('relative_position_bias_table', 'lam_logit')
    neck_in_classifier = (r'^norm\.', 'backbone.norm3.')  # all published ones have four stages

    def __init__(
        self,
        arch: str | Mapping = 'tiny',
        bisa_stages: Sequence[int] = (0,),
        lam: float | str = 0.5,
        lam_init: float = 0.5,
        branch_norm: str | None = None,
        projection: str = 'hypernetwork',
        window_size: int | None = None,
        shift_single_window: bool = True,
        out_indices: Sequence[int] | None = None,
        drop_path_rate: float = 0.1,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.arch = resolve_arch('BiSASwin', arch, ARCHS, ARCH_DEFAULTS, window_size=window_size)
        depths, num_heads = self.arch['depths'], self.arch['num_heads']
        bisa_stages = [bisa_stages] if isinstance(bisa_stages, int) else bisa_stages
        bisa_stages = [range(len(depths))[i] for i in bisa_stages]
        options = dict(branch_norm=branch_norm, projection=projection)
        check_options(lam, **options)
        inverse = dict(options, lam=lam, lam_init=lam_init)
        indices = range(len(depths)) if out_indices is None else out_indices
        self.out_indices = resolve_out_indices(indices, len(depths))
        widths = [self.arch['embed_dims'] * 2**i for i in range(len(depths))]
        self.shift_single_window = shift_single_window

        size, last = self.arch['window_size'], max(self.out_indices)
        rates = iter(drop_path_rate * i / max(sum(depths) - 1, 1) for i in range(sum(depths)))
        self.patch_embed = PatchEmbed(widths[0], self.in_channels)
        self.stages = nn.ModuleList()
        for i in range(last + 1):
            hidden = int(widths[i] * self.arch['mlp_ratio'])
            blocks = []
            for j in range(depths[i]):
                sizes = dict(channels=widths[i], num_heads=num_heads[i], window_size=size)
                if i in bisa_stages and lam != 1:
                    attention = BidirectionalWindowAttention(**sizes, **inverse)
                else:
                    attention = WindowAttention(**sizes)
                shifted = ShiftedWindows(attention, shift=size // 2 if j % 2 else 0)
                blocks.append(SwinBlock(widths[i], shifted, hidden, next(rates)))
            stage = nn.ModuleDict(dict(blocks=nn.ModuleList(blocks)))
            if i < last:
                stage['downsample'] = PatchMerging(widths[i])
            self.stages.append(stage)
        for i in self.out_indices:
            self.add_module(f'norm{i}', nn.LayerNorm(widths[i]))
        self.reset_parameters()
        self.finish_init()

    def reset_parameters(self) -> None:
        """Swin's initialisation; for inverse attention see :class:`InverseAttention`."""
        for module in self.modules():
            init_linear(module)
            if isinstance(module, WindowAttention):
                nn.init.trunc_normal_(module.relative_position_bias_table, std=0.02)
        for module in self.modules():
            if isinstance(module, InverseAttention):
                module.reset_parameters()

    def stem(self) -> Parts:
        return [self.patch_embed]

    def embed(self, image: Tensor) -> tuple[Tensor, dict]:
        """A feature map (B,H,W,C), and the windows and their biases in its stage by their shift."""
        return self.patch_embed(image), {}

    def layer_list(self) -> list[LayerInfo]:
        """Patch merging and a norm of the output belong to the block before them."""
        layers, merging = [], None
        for i, stage in enumerate(self.stages):
            downsample, merging = merging, getattr(stage, 'downsample', None)
            for j, block in enumerate(stage.blocks):
                is_last = j == len(stage.blocks) - 1
                norm = getattr(self, f'norm{i}') if is_last and i in self.out_indices else None
                layer = LayerInfo(
                    f'stages.{i}.blocks.{j}',
                    block,
                    self.arch['embed_dims'] * 2**i,
                    4 * 2**i,
                    map_index=i if is_last else None,
                    downsample=downsample if j == 0 else None,
                    norm=norm,
                    parts=(merging,) if is_last else (),
                )
                layers.append(layer)
        return layers

    def step(self, layer: LayerInfo, state: tuple[Tensor, dict]) -> tuple[Tensor, dict]:
        x, windows = state
        if layer.downsample is not None:
            x, windows = layer.downsample(x), {}
        shift = layer.module.attn.shift
        if shift not in windows:
            size = self.arch['window_size']
            windows[shift] = make_windows(x, size, shift, self.shift_single_window)
        return self.run_layer(layer.module, x, *windows[shift]), windows

    def feature_map(self, state: tuple[Tensor, dict], norm: nn.Module | None = None) -> Tensor:
        x, _ = state
        return (x if norm is None else norm(x)).permute(0, 3, 1, 2)

    def convert(self, state: State) -> dict[str, Tensor]:
        """From OpenMMLab's, Microsoft's and timm's Swin Transformers, and the authors' BiSA.

        Left out are the classifier, masks, and stages and output norms that this network does not
        have.
        """
        expected, last = self.state_dict(), len(self.stages) - 1
        is_openmmlab = 'patch_embed.projection.weight' in state
        # timm's patch merging belongs to the stage after it, the others' to the one before
        is_timm = not is_openmmlab and 'layers.0.downsample.norm.weight' not in state

        def new_name(key: str) -> str | None:
            name = key
            for pattern, replacement in () if is_openmmlab else RENAMES:
                name = pattern.sub(replacement, name)
            if is_timm:
                name = MERGING.sub(lambda x: f'stages.{int(x[1]) - 1}.downsample.{x[2]}.', name)
            stage, is_merging = STAGE.match(name), MERGING.match(name)
            is_later = stage and int(stage[1]) + bool(is_merging) > last
            is_dropped = is_later or NOT_USED.match(name) or name.endswith('.attn_mask')
            return None if is_dropped and name not in expected else name

        if not is_openmmlab:
            state = {k: with_our_axes(k, x) for k, x in state.items()}
        weights = rename(state, new_name)
        if not is_openmmlab:
            weights = {k: pixels_last(x) if MERGING.match(k) else x for k, x in weights.items()}
        # computed from the size of the windows, so the file's is not needed
        index = relative_position_index(self.arch['window_size'])
        tables = [key for key in expected if key.endswith('relative_position_index')]
        return weights | dict.fromkeys(tables, index)


def with_our_axes(name: str, value: Tensor) -> Tensor:
    """A weight of inverse attention in a file of BiSA's authors, in its shape here if it fits."""
    is_square = value.ndim == 2 and len(value) == value.shape[1] ** 2
    if name.endswith('.attn.G.weight') and is_square:  # of a linear layer, (d*d,d) to (d,d,d)
        return value.T.unflatten(1, (-1, value.shape[1]))
    if name.endswith('.attn.bias_generator.weight'):
        return value.T
    is_scalar = value.numel() == 1 and name.endswith('.attn.selection_lambda')
    return value.reshape(1) if is_scalar else value


def pixels_last(value: Tensor) -> Tensor:
    """Reorder the inputs of patch merging, (...,4C) to (...,4C).

    Microsoft (and timm) concatenate the channels of four pixels, column by column: (...,4,C).
    OpenMMLab has the four pixels of each channel, row by row: (...,C,4).
    """
    if value.shape[-1] % 4:
        return value
    pixels = value.unflatten(-1, (4, -1))[..., [0, 2, 1, 3], :]
    return pixels.transpose(-2, -1).flatten(-2)
