"""BiSA-Swin: which queries inverse self-attention emphasises, and what a point attends to.

In inverse self-attention each value of a window chooses among the window's queries, by a softmax
over the queries, and projects those that it has chosen. A query's emphasis in a head is the sum of
what all N values of its window give it, ``e_i = sum_j softmax_i(S)_ij`` with the scores S that
self-attention has, too. Every value gives away 1, so the mean of e over a window is 1: a query with
e = 2 is chosen twice as much as it would be without any preference.

Where a window reaches beyond the feature map, the zeros that fill it up choose and are chosen, as
in the network, and are not drawn.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from mmbixt.backbones.bisa_swin import ShiftedWindows
from mmbixt.ops.window_attention.windows import Windows
from mmbixt.visualization.attention.drawing import RED_AND_BLUE, sheet
from mmbixt.visualization.attention.pictures import Layer
from mmbixt.visualization.attention.stages import PointMaps, StagePictures

EMPHASIS = 'emphasis (1 × = evenly spread)'
EMPHASIS_NOTE = (
    'emphasis of a query: what the values of its window give it when each chooses among the '
    f'queries; {RED_AND_BLUE} over the window'
)
SELF_NOTE = 'cyan: the window of the point (+) · self-attention: what its query reads'
INVERSE_NOTE = ' · inverse attention: the queries that its value chooses'


class WindowMaps(NamedTuple):
    """The attention matrices of all windows of a layer.

    Attributes:
        over_keys: (windows,h,N,N), rows are queries and sum to one: self-attention.
        over_queries: (windows,h,N,N), columns are values and sum to one: inverse self-attention.
        windows: which token is where.
        mask: (windows,1,N,N), negative for tokens of a window that do not see each other, since
            they are from opposite ends of the feature map; None if there are none.
    """

    over_keys: Tensor
    over_queries: Tensor
    windows: Windows
    mask: Tensor | None


def window_maps(layer: Layer) -> WindowMaps:
    shifted, (x, mask) = layer.module, layer.inputs
    windows = Windows.of(x, shifted.window_size, shifted.shift)
    mask = mask if shifted.shift else None
    over_keys, over_queries = shifted.w_msa.attention_maps(x, mask, windows)
    return WindowMaps(over_keys[0], over_queries[0], windows, mask)


def emphasis(maps: WindowMaps) -> Tensor:
    """Of each query in each head (h,H',W'); see the top of this file."""
    return _join(maps.over_queries.sum(-1), maps.windows)


def _join(x: Tensor, windows: Windows) -> Tensor:
    """Tokens of windows (windows,h,N) to (h,H',W')."""
    return windows.join(x.transpose(1, 2)[None])[0].permute(2, 0, 1)


def window_point(maps: WindowMaps, cell: tuple[int, int]) -> PointMaps:
    """Of the token in a cell (row, column), in the part of its window that it sees."""
    windows = maps.windows
    place = windows.place[cell[0] * windows.shape[2] + cell[1]]
    window, index = divmod(int(place), windows.size**2)
    seen = torch.ones_like(maps.over_keys[0, 0, 0], dtype=torch.bool)
    if maps.mask is not None:
        seen = maps.mask[window, 0, index] == 0
    found = {}
    for kind, shares in (
        ('self-attention', maps.over_keys[window, :, index]),
        ('inverse attention', maps.over_queries[window, :, :, index]),
    ):
        everywhere = torch.full_like(maps.over_keys[..., 0], torch.nan)
        everywhere[window] = (shares * seen.sum()).where(seen, torch.nan)
        found[kind] = _join(everywhere, windows)
    cells = found['self-attention'][0].isfinite().nonzero()
    (top, left), (bottom, right) = cells.amin(0).tolist(), cells.amax(0).tolist()
    return PointMaps(found, (top, left, bottom - top + 1, right - left + 1))


class BiSASwinPictures(StagePictures):
    enlarged = True

    @property
    def family(self) -> str:
        return 'BiSA-Swin' if self._inverse_layers() else 'Swin'

    def _inverse_layers(self) -> list[str]:
        """Those with an inverse branch; a plain Swin Transformer has none."""
        layers = self.attention_layers(self.backbone)
        return [name for name, layer in layers.items() if layer.w_msa.isa is not None]

    def default_layers(self) -> list[str]:
        return [*self._inverse_layers(), *super().default_layers()]

    def num_heads(self, layer: ShiftedWindows) -> int:
        return layer.w_msa.num_heads

    def point_maps(self, layer: Layer, cell: tuple[int, int]) -> PointMaps:
        found = window_point(window_maps(layer), cell)
        if layer.module.w_msa.isa is None:
            del found.maps['inverse attention']
        return found

    def note(self, found: Sequence[PointMaps]) -> str:
        inverse = any('inverse attention' in one.maps for one in found)
        return f'{SELF_NOTE}{INVERSE_NOTE * inverse}\n{RED_AND_BLUE} over the window'

    def figures(self, layer: Layer) -> dict[str, Callable[[], Figure]]:
        heads = self.choose_heads(layer, 'mean')
        figures = {'point_attention': partial(self.point_figure, layer, heads)}
        if layer.module.w_msa.isa is None:
            return figures
        heads = self.choose_heads(layer, 'each')
        return {'inverse_emphasis': partial(self._emphasis, layer, heads)} | figures

    def _emphasis(self, layer: Layer, heads: Mapping[str, slice]) -> Figure:
        """The emphasis of all queries in each of some heads."""
        maps = emphasis(window_maps(layer))
        title = (
            f'{self.family}, layer {layer.name}: which queries inverse self-attention emphasises '
            f'(its share of the output: {1 - float(layer.module.w_msa.lam):.2g})'
        )
        note = f'{EMPHASIS_NOTE}\nthin lines: windows'
        panels = layer.panels({'emphasis': maps}, heads)
        figure, axes = sheet(self.scene, panels, title, note, 3, 4.2, EMPHASIS)
        for ax in axes:
            draw_windows(ax, layer)
        return figure

    def summary(self) -> Figure:
        """The emphasis in two layers, three heads each; what a point attends to without any."""
        inverse = self._inverse_layers()
        if not inverse:
            return self.point_summary()
        panels = []
        for layer in self.record(inverse[:2]):
            maps = {f'layer {layer.name}': emphasis(window_maps(layer))}
            panels += layer.panels(maps, self.choose_heads(layer, 'each'))[:3]
        title = f'{self.family}: which queries inverse self-attention emphasises'
        return sheet(self.scene, panels, title, EMPHASIS_NOTE, 3, 3.0, EMPHASIS)[0]


def draw_windows(ax: Axes, layer: Layer) -> None:
    """Lines between windows."""
    step, start = (side * layer.stride for side in (layer.module.window_size, layer.module.shift))
    width, height = ax.get_xlim()[1], ax.get_ylim()[0]
    options = dict(colors='white', linewidth=0.5, alpha=0.45)
    ax.vlines(np.arange(start or step, width, step), 0, height, **options)
    ax.hlines(np.arange(start or step, height, step), 0, width, **options)
