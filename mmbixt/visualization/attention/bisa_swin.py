"""BiSA-Swin: which queries inverse self-attention emphasises, and what a point attends to.

In inverse self-attention each value of a window chooses among the window's queries, by a softmax
over the queries, and projects those that it has chosen. A query's emphasis in a head is the sum of
what all N values of its window give it, ``e_i = sum_j softmax_i(S)_ij`` with the scores S that
self-attention has, too. Every value gives away 1, so the mean of e over a window is 1: a query with
e = 2 is chosen twice as much as it would be without any preference.

Where a window reaches beyond the map, the zeros that fill it up choose and are chosen, as in the
network, and are not drawn.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from mmbixt.backbones import BiSASwin
from mmbixt.backbones.bisa_swin import ShiftedWindows
from mmbixt.ops.window_attention.windows import Windows
from mmbixt.visualization.attention.choices import Request
from mmbixt.visualization.attention.drawing import (
    RED_AND_BLUE,
    Panel,
    contact_sheet,
    image_and_panels,
    mark_point,
    outline,
    panels_of_own_scale,
)

EMPHASIS = 'emphasis (1 × = evenly spread)'
EMPHASIS_NOTE = (
    'emphasis of a query: what the values of its window give it when each chooses among the '
    f'queries; {RED_AND_BLUE} over the window'
)
SELF_NOTE = "the point's window (cyan), enlarged · self-attention: what its query reads"
INVERSE_NOTE = ' · inverse attention: the queries that its value chooses'

Box = tuple[int, int, int, int]


class WindowMaps(NamedTuple):
    """The attention matrices of all windows of a layer.

    Attributes:
        over_keys: (windows,h,N,N), rows are queries and sum to one: self-attention.
        over_queries: (windows,h,N,N), columns are values and sum to one: inverse self-attention.
        windows: which token is where.
        mask: (windows,1,N,N), negative for tokens of a window that do not see each other, since
            they are from opposite ends of the map; None if there are none.
    """

    over_keys: Tensor
    over_queries: Tensor
    windows: Windows
    mask: Tensor | None


class WindowPoint(NamedTuple):
    """What the token of a point has to do with the others of its window.

    Attributes:
        reads: (h,H',W'), self-attention of its query, as a multiple of an even spread over the
            part of the window that it sees; NaN elsewhere.
        chooses: (h,H',W'), inverse attention of its value, the same.
        box: of that part: row, column, height, width in cells.
    """

    reads: Tensor
    chooses: Tensor
    box: Box


def attention_layers(backbone: BiSASwin) -> dict[str, ShiftedWindows]:
    """By stage and block, such as '2.5'."""
    return {
        f'{i}.{j}': block.attn
        for i, stage in enumerate(backbone.stages)
        for j, block in enumerate(stage.blocks)
    }


def inverse_layers(backbone: BiSASwin) -> list[str]:
    """Those with an inverse branch; a plain Swin Transformer has none."""
    layers = attention_layers(backbone)
    return [name for name, layer in layers.items() if layer.w_msa.isa is not None]


def name_of(request: Request) -> str:
    return 'BiSA-Swin' if inverse_layers(request.backbone) else 'Swin'


def window_maps(layer: ShiftedWindows, x: Tensor, mask: Tensor | None) -> WindowMaps:
    """Of what went into a layer: tokens (1,H',W',C) and the mask of shifted windows."""
    windows = Windows.of(x, layer.window_size, layer.shift)
    mask = mask if layer.shift else None
    over_keys, over_queries = layer.w_msa.attention_maps(x, mask, windows)
    return WindowMaps(over_keys[0], over_queries[0], windows, mask)


def emphasis(maps: WindowMaps) -> Tensor:
    """Of each query in each head (h,H',W'); see the top of this file."""
    return _on_the_map(maps.over_queries.sum(-1), maps.windows)


def _on_the_map(x: Tensor, windows: Windows) -> Tensor:
    """Tokens of windows (windows,h,N) to (h,H',W')."""
    return windows.join(x.transpose(1, 2)[None])[0].permute(2, 0, 1)


def window_point(maps: WindowMaps, cell: tuple[int, int]) -> WindowPoint:
    """Of the token in a cell (row, column)."""
    n = maps.windows.size**2
    place = int(maps.windows.place[cell[0] * maps.windows.shape[2] + cell[1]])
    window, index = divmod(place, n)
    seen = torch.ones(n, dtype=torch.bool, device=maps.over_keys.device)
    if maps.mask is not None:
        seen = maps.mask[window, 0, index] == 0

    def spread(one: Tensor) -> Tensor:
        """Attention in the window (h,N) to (h,H',W')."""
        everywhere = one.new_full((len(maps.over_keys), len(one), n), torch.nan)
        everywhere[window] = (one * seen.sum()).where(seen, torch.nan)
        return _on_the_map(everywhere, maps.windows)

    reads = spread(maps.over_keys[window, :, index])
    chooses = spread(maps.over_queries[window, :, :, index])
    rows, columns = reads[0].isfinite().cpu().numpy().nonzero()
    top, left = int(rows.min()), int(columns.min())
    box = (top, left, int(rows.max()) - top + 1, int(columns.max()) - left + 1)
    return WindowPoint(reads, chooses, box)


def stride_of(layer: str) -> int:
    """Pixels from one cell of a layer's map to the next."""
    return 4 * 2 ** int(layer.split('.')[0])


def plan(request: Request) -> dict[str, Callable[[], Figure]]:
    """Pictures by the names of their files, each drawn when it is called."""
    backbone = request.backbone
    there = attention_layers(backbone)
    inverse = inverse_layers(backbone)
    layers = request.choose_layers(there, [*inverse, *last_layers(backbone)])
    for name, layer in layers.items():  # are the heads there?
        request.choose_heads(name, layer.w_msa.num_heads, 'mean')
    found = request.record(layers)
    pictures = {}
    for name, layer in layers.items():
        maps = partial(window_maps, layer, *found[name])
        if name in inverse:
            draw = partial(emphasis_figure, request, name, layer, maps)
            pictures[f'layer_{name}_inverse_emphasis'] = draw
        draw = partial(point_figure, request, name, layer, maps)
        pictures[f'layer_{name}_point_attention'] = draw
    return pictures


def last_layers(backbone: BiSASwin) -> list[str]:
    """The last layer of each stage."""
    return [f'{i}.{len(stage.blocks) - 1}' for i, stage in enumerate(backbone.stages)]


def emphasis_panels(
    request: Request, name: str, layer: ShiftedWindows, maps: WindowMaps
) -> list[Panel]:
    heads = request.choose_heads(name, layer.w_msa.num_heads, 'each')
    found = emphasis(maps)
    return [Panel(str(head), head.of(found), stride_of(name)) for head in heads]


def emphasis_figure(
    request: Request, name: str, layer: ShiftedWindows, maps: Callable[[], WindowMaps]
) -> Figure:
    """The emphasis of all queries, in each head that is asked for."""
    panels = emphasis_panels(request, name, layer, maps())
    title = f'BiSA-Swin, layer {name}: which queries inverse self-attention emphasises'
    title += f' (its share of the output: {1 - float(layer.w_msa.lam):.2g})'
    note = f'{EMPHASIS_NOTE}\nthin lines: windows'
    figure = contact_sheet(request.scene, panels, title, note, EMPHASIS, columns=3, panel_width=4.2)
    for ax in figure.axes[: len(panels)]:
        draw_windows(ax, layer, stride_of(name))
    return figure


def draw_windows(ax: Axes, layer: ShiftedWindows, stride: int) -> None:
    """Lines between windows."""
    step, start = layer.window_size * stride, layer.shift * stride
    width, height = ax.get_xlim()[1], ax.get_ylim()[0]
    options = dict(color='white', linewidth=0.5, alpha=0.45)
    for x in np.arange(start or step, width, step):
        ax.axvline(x, **options)
    for y in np.arange(start or step, height, step):
        ax.axhline(y, **options)


def point_figure(
    request: Request, name: str, layer: ShiftedWindows, maps: Callable[[], WindowMaps]
) -> Figure:
    """The window of the point: what its query reads and, with an inverse branch, its value."""
    stride, windows = stride_of(name), maps()
    found = window_point(windows, request.cell(windows.windows.shape[1:], stride))
    kinds = {'self-attention': found.reads}
    if layer.w_msa.isa is not None:
        kinds['inverse attention'] = found.chooses
    panels = [
        Panel(f'{kind}, {head}', head.of(one), stride)
        for kind, one in kinds.items()
        for head in request.choose_heads(name, layer.w_msa.num_heads, 'mean')
    ]
    title = f'{name_of(request)}, layer {name}: attention of the marked point in its window'
    note = f'{SELF_NOTE}{INVERSE_NOTE if len(kinds) > 1 else ""}\n{RED_AND_BLUE} over the window'
    figure, axes = image_and_panels(request.scene, panels, title, note, panel_width=3.4)
    top, left, height, width = (side * stride for side in found.box)
    outline(axes[0], (left, top, width, height), 'cyan')
    for ax in axes[1:]:
        zoom(ax, found.box, stride)
    for ax in axes:
        mark_point(ax, *request.point)
    return figure


def zoom(ax: Axes, box: Box, stride: int) -> None:
    """Show a window alone, whatever is around it."""
    top, left, height, width = (side * stride for side in box)
    ax.set(xlim=(left, left + width), ylim=(top + height, top))


def summary(request: Request) -> Figure:
    """The emphasis in each layer of the first stage that has an inverse branch, in six panels.

    Without one: what the point attends to in the last layer of each stage.
    """
    layers = attention_layers(request.backbone)
    inverse = inverse_layers(request.backbone)
    if not inverse:
        return plain_summary(request)
    chosen = {name: layers[name] for name in inverse[:2]}
    found = request.record(chosen)
    panels = []
    for name, layer in chosen.items():
        of_layer = emphasis_panels(request, name, layer, window_maps(layer, *found[name]))
        panels += [p._replace(caption=f'layer {name}, {p.caption}') for p in of_layer[:3]]
    title = 'BiSA-Swin: which queries inverse self-attention emphasises'
    return contact_sheet(
        request.scene, panels, title, EMPHASIS_NOTE, EMPHASIS, columns=3, panel_width=3.0
    )


def plain_summary(request: Request) -> Figure:
    """Self-attention of the point's window in the last layer of each stage."""
    layers = attention_layers(request.backbone)
    layers = {name: layers[name] for name in last_layers(request.backbone)}
    inputs = request.record(layers)
    panels = []
    for name, layer in layers.items():
        maps = window_maps(layer, *inputs[name])
        found = window_point(maps, request.cell(maps.windows.shape[1:], stride_of(name)))
        panels.append(Panel(f'layer {name}', found.reads.mean(0), stride_of(name)))
    title = 'Swin: what the marked point attends to in its window, in the last layer of each stage'
    note = f'mean over the heads · {RED_AND_BLUE} over the window'
    figure, axes = panels_of_own_scale(request.scene, panels, title, note)
    for ax in axes:
        mark_point(ax, *request.point)
    return figure
