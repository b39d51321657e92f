"""BiFormer: Vision Transformer with Bi-Level Routing Attention (2023).

Each region of a feature map attends to the few regions that it is routed to, token by token, in
three stages; in the fourth all tokens attend to all. The names of the weights are the authors'.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from mmbixt.attention.routing import FullAttention, RoutingAttention
from mmbixt.backbones.arch import check_choice, resolve_arch, resolve_out_indices
from mmbixt.backbones.base import DenseBackbone, LayerInfo, Parts, State
from mmbixt.backbones.final_layers import BatchNormMean
from mmbixt.checkpoints.state_dict import rename
from mmbixt.layers import DropPath, SequentialMlp
from mmbixt.layers.initialise import init_linear

ARCHS = {
    'tiny': dict(embed_dims=(64, 128, 256, 512), depths=(2, 2, 8, 2)),
    'small': dict(embed_dims=(64, 128, 256, 512), depths=(4, 4, 18, 4)),
    'base': dict(embed_dims=(96, 192, 384, 768), depths=(4, 4, 18, 4)),
    'stl': dict(embed_dims=(96, 192, 384, 768), depths=(2, 2, 6, 2), mlp_ratio=4, code='stl'),
}
ARCH_DEFAULTS = dict(mlp_ratio=3, topks=(1, 4, 16, -2), code='biformer')
HEAD_WIDTH = 32  # of routing attention
FULL_HEADS = 8  # of full attention, for any width

# names in the authors' file of the Swin-like model
RENAMES = (
    (re.compile(r'^(stages\.\d+)\.blocks\.'), r'\1.'),
    (re.compile(r'\.mlp\.2\.'), '.mlp.3.'),
)
PART = re.compile(r'(?:downsample_layers|stages|extra_norms)\.(\d+)\.')


class Block(nn.Module):
    """``x + conv(x)`` (with ``position``), ``x + attention(norm(x))``, ``x + mlp(norm(x))``."""

    def __init__(
        self,
        channels: int,
        attention: nn.Module,
        mlp_ratio: float,
        drop_path: float,
        position: bool,
    ) -> None:
        super().__init__()
        self.pos_embed = None
        if position:
            self.pos_embed = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.norm1 = nn.LayerNorm(channels, eps=1e-6)
        self.attn = attention
        self.norm2 = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = SequentialMlp(channels, int(channels * mlp_ratio))
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor) -> Tensor:
        """(B,H,W,C) to (B,H,W,C)."""
        if self.pos_embed is not None:
            x = x + self.pos_embed(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        x = x + self.drop_path(self.attn(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


def overlapping_downsampling(in_channels: int, widths: Sequence[int]) -> nn.ModuleList:
    """Convolutions of 3 x 3; sides are rounded up."""

    def halve(c_in: int, c_out: int) -> list[nn.Module]:
        return [nn.Conv2d(c_in, c_out, 3, stride=2, padding=1), nn.BatchNorm2d(c_out)]

    stem = [*halve(in_channels, widths[0] // 2), nn.GELU(), *halve(widths[0] // 2, widths[0])]
    between = [halve(*pair) for pair in pairwise(widths)]
    return nn.ModuleList(nn.Sequential(*layers) for layers in (stem, *between))


def patchwise_downsampling(in_channels: int, widths: Sequence[int]) -> nn.ModuleList:
    """Convolutions of patches without overlap, as in a Swin Transformer; sides are rounded down."""
    stem = [nn.Conv2d(in_channels, widths[0], 4, stride=4), nn.BatchNorm2d(widths[0])]
    between = [
        [nn.BatchNorm2d(c_in), nn.Conv2d(c_in, c_out, 2, stride=2)]
        for c_in, c_out in pairwise(widths)
    ]
    return nn.ModuleList(nn.Sequential(*layers) for layers in (stem, *between))


class BiFormer(DenseBackbone):
    """Vision transformer with bi-level routing attention, for dense prediction.

    Args:
        arch: 'tiny', 'small', 'base'; 'stl', the Swin-T-like model of the authors' ablation, with
            patches instead of overlapping convolutions and without convolutions for positions
            (feature maps of ``floor(H/stride) x floor(W/stride)`` cells, since each stage drops the
            pixels that do not fill a patch: images of at least 32 x 32 pixels); or a dict with
            ``embed_dims`` and ``depths`` (per stage) and optionally ``mlp_ratio`` (3), ``topks``
            and ``code`` ('biformer' or 'stl').
        num_regions: regions per side of a feature map, for all stages or one number for each. The
            authors use 7 for classification at 224 pixels, 8 for segmentation at 512 and 16 for
            detection. 'auto': as many as suit the size of the map, by Equation 9 of the paper (see
            :func:`mmbixt.attention.routing.region_side`), so that the cost of attention grows as
            ``(H W)^(4/3)``, not ``(H W)^2``.
        topks: regions that a region attends to, one number for each stage; default: those of
            ``arch``. -2 means attention among all tokens with LePE, -1 without LePE.
        padding: how attention treats the zeros that pad a feature map to whole regions: 'masked'
            ignores them, 'legacy' includes them as the authors' code, which made the published
            results. Without padding, where ``num_regions`` divides all sides, both are equal.
        out_indices: stages (from 0; negative ones from the end) whose feature maps are returned,
            each through its own norm; default: all. Stages after the last of them are not built.
        output_norms: False returns the feature maps without norms, as classifiers need them.
        drop_path_rate: stochastic depth, growing linearly from 0 at the first block to this rate
            at the last one of all stages.
        options: ``in_channels``, ``frozen_stages``, ``norm_eval``, ``with_cp`` and ``init_cfg``
            of :class:`mmbixt.backbones.base.DenseBackbone`. A stage is frozen with the
            convolutions before it and its output's norm.
    """

    freezes_stem_alone = False
    has_free_sizes = False  # regions are cut by numbers
    may_be_missing = r'extra_norms\.\d+\.'  # files of classifiers have no norms of the outputs
    weight_names = r'attn\.lepe\.|extra_norms\.'
    final_layers = BatchNormMean
    in_classifier = dict(output_norms=False, out_indices=(-1,))
    neck_in_classifier = (r'^norm\.', 'neck.norm.')

    def __init__(
        self,
        arch: str | Mapping = 'small',
        num_regions: int | str | Sequence[int | str] = 8,
        topks: Sequence[int] | None = None,
        padding: str = 'masked',
        out_indices: Sequence[int] | None = None,
        output_norms: bool = True,
        drop_path_rate: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        overrides = dict(topks=topks, num_regions=num_regions)
        self.arch = resolve_arch('BiFormer', arch, ARCHS, ARCH_DEFAULTS, **overrides)
        widths, depths = self.arch['embed_dims'], self.arch['depths']
        check_choice('padding', padding, ('masked', 'legacy'))
        check_choice('code', self.arch['code'], ('biformer', 'stl'))
        is_stl = self.arch['code'] == 'stl'
        topks = self.arch['topks']
        if isinstance(num_regions, str) or not isinstance(num_regions, Sequence):
            num_regions = (num_regions,) * len(depths)
        for topk, regions in zip(self.arch['topks'], num_regions, strict=True):
            if topk not in (-1, -2) and (topk < 1 or (regions != 'auto' and topk > regions**2)):
                raise ValueError(f'topks={topks!r}: a stage has {regions} x {regions} regions.')
        indices = range(len(depths)) if out_indices is None else out_indices
        self.out_indices = resolve_out_indices(indices, len(depths))

        last = max(self.out_indices)
        downsampling = patchwise_downsampling if is_stl else overlapping_downsampling
        self.downsample_layers = downsampling(self.in_channels, widths[: last + 1])
        rates = iter(drop_path_rate * i / max(sum(depths) - 1, 1) for i in range(sum(depths)))
        self.stages = nn.ModuleList()
        for i in range(last + 1):
            self.stages.append(nn.ModuleList())
            for _ in range(depths[i]):
                attention = self._make_attention(i, num_regions[i], padding)
                options = (self.arch['mlp_ratio'], next(rates), not is_stl)
                self.stages[i].append(Block(widths[i], attention, *options))
        self.extra_norms = nn.ModuleDict()
        for i in self.out_indices:
            norm = nn.LayerNorm(widths[i], eps=1e-6) if output_norms else nn.Identity()
            self.extra_norms[str(i)] = norm
        self.apply(init_linear)  # the authors' initialisation; other layers keep torch's
        self.finish_init()

    def _make_attention(self, stage: int, num_regions: int | str, padding: str) -> nn.Module:
        channels, topk = self.arch['embed_dims'][stage], self.arch['topks'][stage]
        if topk > 0:
            heads = max(1, channels // HEAD_WIDTH)
            return RoutingAttention(channels, heads, topk, num_regions, padding)
        return FullAttention(channels, FULL_HEADS, lepe=topk == -2)

    def stem(self) -> Parts:
        return [self.downsample_layers[0]]

    def embed(self, image: Tensor) -> Tensor:
        """A feature map (B,H,W,C)."""
        return self.downsample_layers[0](image).permute(0, 2, 3, 1)

    def layer_list(self) -> list[LayerInfo]:
        """A downsampling belongs to the block after it, a norm of the output to the one before."""
        layers = []
        for i, stage in enumerate(self.stages):
            for j, block in enumerate(stage):
                is_last = j == len(stage) - 1
                downsample = self.downsample_layers[i] if i > 0 and j == 0 else None
                norm = self.extra_norms[str(i)] if is_last and i in self.out_indices else None
                layer = LayerInfo(
                    f'stages.{i}.{j}',
                    block,
                    self.arch['embed_dims'][i],
                    4 * 2**i,
                    map_index=i if is_last else None,
                    downsample=downsample,
                    norm=norm,
                    parts=(downsample,),
                )
                layers.append(layer)
        return layers

    def step(self, layer: LayerInfo, state: Tensor) -> Tensor:
        if layer.downsample is not None:
            state = layer.downsample(state.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return self.run_layer(layer.module, state)

    def feature_map(self, state: Tensor, norm: nn.Module | None = None) -> Tensor:
        return (state if norm is None else norm(state)).permute(0, 3, 1, 2)

    def convert(self, state: State) -> dict[str, Tensor]:
        """From the authors' files of classifiers and dense models.

        Left out are the classifier, and stages and output norms that this network does not have.
        """
        expected = self.state_dict()

        def new_name(key: str) -> str | None:
            for pattern, replacement in RENAMES:
                key = pattern.sub(replacement, key)
            part = PART.match(key)
            is_later = part and int(part[1]) >= len(self.stages)
            is_dropped = is_later or key.startswith(('norm.', 'head.', 'extra_norms.'))
            return None if is_dropped and key not in expected else key

        return rename(state, new_name)
