"""BiFormer: which regions the region of a point is routed to, and what the point attends to there.

In stages of full attention, where nothing is routed, a point attends to all of the image.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from mmbixt.backbones import BiFormer
from mmbixt.layers import FullAttention, RoutingAttention
from mmbixt.visualization.attention.choices import Request
from mmbixt.visualization.attention.drawing import (
    RED_AND_BLUE,
    Panel,
    image_and_panels,
    mark_point,
    outline,
    panels_of_own_scale,
)

OWN, ROUTED = 'cyan', 'yellow'
ROUTED_NOTE = 'cyan: the region of the point (+) · yellow: the regions that it is routed to, '
FULL_NOTE = 'full attention: nothing is routed, the point (+) attends to all of the image'
HEAT_NOTE = f'attention: {RED_AND_BLUE} over all that the point attends to'

Box = tuple[int, int, int, int]


class PointAttention(NamedTuple):
    """What the token of a point attends to.

    Attributes:
        maps: (h,H',W'): the attention of each head, as a multiple of an even spread over the tokens
            that the point may attend to; NaN elsewhere.
        own: the region of the point: row, column, height, width in cells. None in full attention.
        routed: the regions that it is routed to, the best first.
    """

    maps: Tensor
    own: Box | None
    routed: list[Box]


def attention_layers(backbone: BiFormer) -> dict[str, RoutingAttention | FullAttention]:
    """By stage and block, such as '2.7'."""
    return {
        f'{i}.{j}': block.attn
        for i, stage in enumerate(backbone.stages)
        for j, block in enumerate(stage)
    }


def point_attention(
    attention: RoutingAttention | FullAttention, x: Tensor, cell: tuple[int, int]
) -> PointAttention:
    """Of the token in a cell (row, column) of a layer's input (1,H',W',C)."""
    if isinstance(attention, FullAttention):
        return PointAttention(full_attention(attention, x, cell), None, [])
    return routed_attention(attention, x, cell)


def full_attention(attention: FullAttention, x: Tensor, cell: tuple[int, int]) -> Tensor:
    """(h,H',W'); the mean is 1."""
    height, width = x.shape[1:3]
    shares = attention.attention_maps(x)[0, :, cell[0] * width + cell[1]]
    return shares.unflatten(-1, (height, width)) * (height * width)


def routed_attention(
    attention: RoutingAttention, x: Tensor, cell: tuple[int, int]
) -> PointAttention:
    """Of the token in a cell over the tokens of the regions that its region is routed to."""
    height, width = x.shape[1:3]
    routes, regions = attention.routes(x)
    row, column = cell[0] // regions.height, cell[1] // regions.width
    own = row * regions.columns + column
    place = cell[0] % regions.height * regions.width + cell[1] % regions.width
    routed = routes[0, own]
    shares = attention.attention_maps(x, own)[0, :, place]  # (h,k,L)
    attended = regions.inside(height, width, x.device)
    if attended is None or attention.padding == 'legacy':
        attended = shares.new_ones(routes.shape[1], shares.shape[2], dtype=torch.bool)

    maps = shares.new_full((attention.num_heads, *attended.shape), torch.nan)
    maps[:, routed] = shares * attended[routed].sum()
    maps = regions.join(maps[..., None])[:, :height, :width, 0]

    def box(region: int) -> Box:
        top, left = divmod(region, regions.columns)
        sides = (regions.height, regions.width)
        return (top * sides[0], left * sides[1], *sides)

    return PointAttention(maps, box(own), [box(int(region)) for region in routed])


def stride_of(layer: str) -> int:
    """Pixels from one cell of a layer's map to the next."""
    return 4 * 2 ** int(layer.split('.')[0])


def find(request: Request, layer: str, attention: torch.nn.Module, inputs: tuple) -> PointAttention:
    x = inputs[0]
    return point_attention(attention, x, request.cell(x.shape[1:3], stride_of(layer)))


def plan(request: Request) -> dict[str, Callable[[], Figure]]:
    """Pictures by the names of their files, each drawn when it is called."""
    backbone = request.backbone
    default = last_layers(backbone)
    layers = request.choose_layers(attention_layers(backbone), default)
    heads = {n: request.choose_heads(n, layer.num_heads, 'mean') for n, layer in layers.items()}
    inputs = request.record(layers)

    def draw(name: str) -> Figure:
        found = find(request, name, layers[name], inputs[name])
        panels = [Panel(str(head), head.of(found.maps), stride_of(name)) for head in heads[name]]
        title = f'BiFormer, layer {name}: what the marked point attends to'
        return point_figure(request, found, panels, title)

    return {f'layer_{name}_point_attention': partial(draw, name) for name in layers}


def last_layers(backbone: BiFormer) -> list[str]:
    """The last layer of each stage."""
    return [f'{i}.{len(stage) - 1}' for i, stage in enumerate(backbone.stages)]


def point_figure(
    request: Request, found: PointAttention, panels: list[Panel], title: str
) -> Figure:
    """The image with its regions, then a heat map for each head that is asked for."""
    note = FULL_NOTE
    if found.own is not None:
        note = f'{ROUTED_NOTE}1 is the best of {len(found.routed)}'
    note = f'{note}\n{HEAT_NOTE}'
    width = 5.0 if len(panels) == 1 else 3.4
    figure, axes = image_and_panels(request.scene, panels, title, note, width)
    for i, ax in enumerate(axes):
        show_regions(ax, found, panels[0].stride, numbers=i == 0)
        mark_point(ax, *request.point)
    return figure


def show_regions(ax: Axes, found: PointAttention, stride: int, numbers: bool) -> None:
    for rank, box in enumerate(found.routed, start=1):
        _outline(ax, box, stride, ROUTED, str(rank) if numbers else '')
    if found.own is not None:
        _outline(ax, found.own, stride, OWN)


def _outline(ax: Axes, box: Box, stride: int, colour: str, text: str = '') -> None:
    top, left, height, width = (side * stride for side in box)
    outline(ax, (left, top, width, height), colour, text)


def summary(request: Request) -> Figure:
    """What the point attends to in the last layer of each stage, the mean over the heads."""
    layers = attention_layers(request.backbone)
    layers = {name: layers[name] for name in last_layers(request.backbone)}
    inputs = request.record(layers)
    found = {name: find(request, name, layers[name], inputs[name]) for name in layers}
    panels = [
        Panel(f'layer {name}', one.maps.mean(0), stride_of(name)) for name, one in found.items()
    ]
    title = 'BiFormer: what the marked point attends to, in the last layer of each stage'
    note = f'{ROUTED_NOTE}if the stage routes\nmean over the heads · {HEAT_NOTE}'
    figure, axes = panels_of_own_scale(request.scene, panels, title, note)
    for ax, panel, one in zip(axes, panels, found.values(), strict=True):
        show_regions(ax, one, panel.stride, numbers=False)
        mark_point(ax, *request.point)
    return figure
