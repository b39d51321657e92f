"""BiFormer: the attention of a point, and the regions that its region is routed to.

In stages with full attention there is no routing: a point attends to the whole image.
"""

from collections.abc import Iterator

import torch
from matplotlib.figure import Figure
from torch import Tensor

from mmbixt.attention import RoutingAttention
from mmbixt.visualization.attention.drawing import RED_AND_BLUE
from mmbixt.visualization.attention.pictures import Layer
from mmbixt.visualization.attention.stages import Box, PointMaps, StagePictures


def point_attention(layer: Layer, cell: tuple[int, int]) -> PointMaps:
    """Attention of the token in a cell (row, column) of a layer's input (1,H',W',C)."""
    attention, x = layer.module, layer.inputs[0]
    if isinstance(attention, RoutingAttention):
        return routed_attention(attention, x, cell)
    height, width = x.shape[1:3]
    shares = attention.attention_maps(x)[0, :, cell[0] * width + cell[1]]
    maps = shares.unflatten(-1, (height, width)) * (height * width)
    return PointMaps({'full attention': maps}, None)


def routed_attention(attention: RoutingAttention, x: Tensor, cell: tuple[int, int]) -> PointMaps:
    """Attention of the token in a cell over the tokens of its k routed regions."""
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

    return PointMaps({'routed attention': maps}, box(own), [box(int(i)) for i in routed])


class BiFormerPictures(StagePictures):
    point_note = (
        'cyan: the region of the point (+) · yellow: the regions that it is routed to, 1 is the '
        'best; full attention routes nothing, the point attends to all of the image · '
        f'{RED_AND_BLUE} over all that the point attends to'
    )

    point_maps = staticmethod(point_attention)

    def draw(self, layer: Layer) -> Iterator[tuple[str, Figure]]:
        yield 'point_attention', self.point_figure([layer])
