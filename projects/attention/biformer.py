"""BiFormer: the attention of a point, and the regions that its region is routed to."""

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from mmbixt.attention.routing import routing_attention_maps
from projects.attention.drawing import RED_AND_BLUE, Layer, Panel, View, outline, sheet

SENTENCE = (
    'The patches of a region (cyan, with the point +) attend only to the yellow regions, the '
    '{count} whose mean keys are most similar to its mean query (1 is the best); {colours}.'
)


def matrices(attention: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Of what a layer gets, (B,H,W,C), the attention (B,R,h,L,kL) of the tokens of each region over
    those of the k regions that it is routed to; these regions (B,R,k), the best first; and which
    tokens are attended to (R,L), None for all."""
    queries, keys, _, routes, valid = attention.route(x, attention.regions(*x.shape[1:3]))
    return routing_attention_maps(queries, keys, routes, attention.scale, valid), routes, valid


def of_point(layer: Layer, cell: tuple[int, int]) -> tuple[Tensor, tuple, list[tuple]]:
    """The attention of the token in a cell (row, column).

    Returns:
        (h,H',W'), times the number of tokens that it may attend to, so that uniform attention is 1,
        NaN for others; the region of the token, and those that this is routed to, the best first,
        as (row, column, height, width) in cells.
    """
    attention, routes, valid = matrices(layer.module, *layer.inputs)
    rows, columns = layer.inputs[0].shape[1:3]
    regions = layer.module.regions(rows, columns)
    (row, column), (_, across, height, width) = cell, regions
    own, token = row // height * across + column // width, row % height * width + column % width
    routed = routes[0, own].tolist()
    attention = attention[0, own, :, token].unflatten(-1, (len(routed), -1))  # (h,k,L)
    count = attention[0].numel() if valid is None else valid[routed].sum()
    shares = attention.new_full((len(attention), routes.shape[1], height * width), torch.nan)
    shares[:, routed] = attention * count
    shares = regions.join(shares[..., None])[:, :rows, :columns, 0]
    boxes = [(i // across * height, i % across * width, height, width) for i in (own, *routed)]
    return shares, boxes[0], boxes[1:]


def draw(layer: Layer, view: View) -> Figure:
    shares, own, routed = of_point(layer, layer.cell(view))
    caption = f'attention of the point ({view.text_of_heads})'
    panels = [Panel('image'), Panel(caption, view.mean_of_heads(shares))]
    title = f'BiFormer, layer {layer.name}: what the patch at a point attends to'
    texts = title, SENTENCE.format(count=len(routed), colours=RED_AND_BLUE)
    figure, axes = sheet(view, layer.stride, panels, texts, columns=2)
    for ax in axes:
        for rank, box in enumerate(routed, start=1):
            outline(ax, box, layer.stride, 'yellow', str(rank) if ax is axes[0] else '')
        outline(ax, own, layer.stride, 'cyan', point=view.point)
    return figure
