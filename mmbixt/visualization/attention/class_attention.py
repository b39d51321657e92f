"""XCiT's class attention: where the class token of a classifier attends, a panel for each head."""

import math

from matplotlib.figure import Figure
from torch import Tensor

from mmbixt.visualization.attention.drawing import RED_AND_BLUE, Panel, View, sheet
from mmbixt.visualization.attention.layer import Layer

SENTENCE = (
    'Where the class token, which is classified, attends in the image in each head; '
    f'{RED_AND_BLUE} of what its attention to itself leaves.'
)


def attention_maps(layer: Layer) -> tuple[Tensor, Tensor]:
    """Attention of the class token to itself (h) and over the tokens (h,H',W').

    The latter is divided by its mean: in a trained network most attention may be to itself.
    """
    attention = layer.module.attention_maps(*layer.inputs)[0]  # (h,1+N)
    others = attention[:, 1:]
    return attention[:, 0], (others / others.mean(1, keepdim=True)).unflatten(1, layer.grid)


def draw(layer: Layer, view: View) -> Figure:
    to_itself, maps = attention_maps(layer)
    panels = [Panel('image')]
    for head in range(len(maps)) if layer.heads is None else layer.heads:
        caption = f'head {head} (to itself: {to_itself[head]:.1%})'
        panels.append(Panel(caption, maps[head], layer.stride))
    title = f'XCiT, layer {layer.name}: where the class token attends'
    return sheet(view, panels, title, SENTENCE, columns=math.ceil(len(panels) ** 0.5))[0]
