"""BiFormer: the attention of a point, and the regions that its region is routed to."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from mmbixt.visualization.attention import drawing
from mmbixt.visualization.attention.drawing import RED_AND_BLUE, Panel, View
from mmbixt.visualization.attention.layer import Layer

Box = tuple[int, int, int, int]  # row, column, height, width in cells
SENTENCE = (
    'The patches of a region (cyan, with the point +) attend only to the yellow regions, the '
    '{count} whose mean keys are most similar to its mean query (1 is the best); {colours}.'
)


class PointAttention(NamedTuple):
    """The attention of the token at a point."""

    # (h,H',W'): attention times the number of tokens that the point may attend to, so that uniform
    # attention is 1; NaN for other tokens
    maps: Tensor
    own: Box  # the region of the point
    routed: Sequence[Box]  # the k regions that it is routed to, the best first


def point_attention(layer: Layer, cell: tuple[int, int]) -> PointAttention:
    """Attention of the token in a cell (row, column) of a layer's input (1,H',W',C)."""
    attention, x = layer.module, layer.inputs[0]
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

    return PointAttention(maps, box(own), [box(int(i)) for i in routed])


def draw(layer: Layer, view: View) -> Figure:
    maps, own, routed = point_attention(layer, view.cell(layer.stride))
    caption = f'attention of the point ({layer.text_of_heads})'
    panels = [Panel('image'), Panel(caption, layer.mean_of_heads(maps), layer.stride)]
    title = f'BiFormer, layer {layer.name}: what the patch at a point attends to'
    sentence = SENTENCE.format(count=len(routed), colours=RED_AND_BLUE)
    figure, axes = drawing.sheet(view, panels, title, sentence, columns=2)
    for ax in axes:
        for rank, box in enumerate(routed, start=1):
            text = str(rank) if ax is axes[0] else ''
            drawing.outline(ax, box, layer.stride, 'yellow', text)
        drawing.outline(ax, own, layer.stride, 'cyan')
        drawing.mark_point(ax, view)
    return figure
