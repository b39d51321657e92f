"""BiXT: what its latents look at in the image, and which latents the image looks at."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from mmbixt.backbones import BiXT
from mmbixt.layers import BidirectionalAttention
from mmbixt.visualization.attention.choices import Head, Request
from mmbixt.visualization.attention.drawing import (
    RED_AND_BLUE,
    Panel,
    Scene,
    add_colour_bar,
    common_norm,
    contact_sheet,
    make_figure,
    show_cells,
    show_grey,
    show_image,
    show_panel,
)

NAMED_LATENTS = 10  # with a colour of their own on a map
OTHERS = '0.6'
# ten colours that are told apart on an image
PALETTE = [
    '#e6194b',
    '#3cb44b',
    '#ffe119',
    '#4363d8',
    '#f58231',
    '#911eb4',
    '#42d4f4',
    '#f032e6',
    '#9a6324',
    '#bfef45',
]


def attention_layers(backbone: BiXT) -> dict[str, BidirectionalAttention]:
    return {
        str(i): block.cross_attention_latents_token.attn for i, block in enumerate(backbone.blocks)
    }


def attention_maps(
    backbone: BiXT, attention: BidirectionalAttention, inputs: tuple, size: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Both attentions of a layer on the grid of the tokens, as multiples of an even spread.

    Args:
        backbone: that the layer is of.
        attention: the layer.
        inputs: what went into it.
        size: (H,W) of the image.

    Returns:
        (h,M,H',W') each: of each latent over the tokens (their mean is 1), and of each token over
        the latents (the mean over latents is 1).
    """
    grid = tuple(-(-side // backbone.patch_stride) for side in size)
    over_tokens, over_latents = (maps[0] for maps in attention.attention_maps(*inputs))
    latents, tokens = over_tokens.shape[1:]
    return (over_tokens * tokens).unflatten(-1, grid), (over_latents * latents).unflatten(-1, grid)


def plan(request: Request) -> dict[str, Callable[[], Figure]]:
    """Pictures by the names of their files, each drawn when it is called."""
    backbone = request.backbone
    default = [str(i) for i in backbone.out_indices]
    layers = request.choose_layers(attention_layers(backbone), default)
    heads = {n: request.choose_heads(n, layer.num_heads, 'mean') for n, layer in layers.items()}
    found = request.record(layers)
    pictures = {}
    for name, layer in layers.items():
        maps = partial(attention_maps, backbone, layer, found[name], request.inputs.shape[2:])
        for head in heads[name]:
            view = View(request.scene, int(name), head, backbone.patch_stride, maps)
            for kind, draw in KINDS.items():
                pictures[f'layer_{view.layer:02d}_{kind}{head.suffix}'] = partial(draw, view)
    return pictures


class View(NamedTuple):
    """What a picture of a layer is made of.

    Attributes:
        scene: the image.
        layer: from 0.
        head: of the layer.
        stride: pixels from token to token.
        maps: gives both attentions of the layer, see :func:`attention_maps`.
    """

    scene: Scene
    layer: int
    head: Head
    stride: int
    maps: Callable[[], tuple[Tensor, Tensor]]

    def contact_sheet(self, side: int, title: str, note: str) -> Figure:
        """A panel for each latent: of its attention over the tokens (0), or of theirs (1)."""
        maps = self.head.of(self.maps()[side])
        panels = [Panel(str(i), one, self.stride) for i, one in enumerate(maps)]
        columns = 8 if len(panels) <= 64 else 16
        title = f'BiXT, layer {self.layer} ({self.head}): {title.format(len(panels))}'
        return contact_sheet(self.scene, panels, title, note, columns=columns)


def latents_over_image(view: View) -> Figure:
    """A contact sheet of each latent's attention over the tokens."""
    return view.contact_sheet(
        0,
        'where in the image each of the {} latents looks',
        f'a panel for each latent, with its number · attention that it pays to tokens: '
        f'{RED_AND_BLUE} over all tokens',
    )


def image_over_latents(view: View) -> Figure:
    """A contact sheet of how much attention the tokens give to each latent."""
    return view.contact_sheet(
        1,
        'which parts of the image look at each of the {} latents',
        f'a panel for each latent, with its number · attention that tokens pay to it: '
        f'{RED_AND_BLUE} over all latents',
    )


def strongest_latents(view: View) -> Figure:
    """The latent that each token attends to most, and how much."""
    maps = view.head.of(view.maps()[1])
    title = f'BiXT, layer {view.layer} ({view.head}): the latent that each token looks at most'
    note = (
        'middle: each token in the colour of the latent that it pays most attention to (numbers as '
        f'in the contact sheets) · right: how much that is; {RED_AND_BLUE} over all latents'
    )
    ratio = view.scene.height / view.scene.width
    figure, axes = make_figure(title, 1, 3, 4.2, ratio, note, bars=2)  # the legend is as wide
    show_image(axes[0, 0], view.scene)
    handles = show_strongest(axes[0, 1], view.scene, maps, view.stride)
    add_legend(axes[0, 1], handles, loc='upper left', bbox_to_anchor=(1, 1))
    strength = Panel('its attention', maps.amax(0), view.stride)
    norm = common_norm([strength])
    show_panel(axes[0, 2], view.scene, strength, norm)
    add_colour_bar(figure, [axes[0, 2]], norm)
    return figure


KINDS = {
    'latents_over_image': latents_over_image,
    'image_over_latents': image_over_latents,
    'strongest_latents': strongest_latents,
}


def show_strongest(ax: Axes, scene: Scene, maps: Tensor, stride: int) -> list[Patch]:
    """Colour each token by the latent (of maps (M,H',W')) that it attends to most.

    Returns:
        What goes into a legend.
    """
    strongest = maps.argmax(0).cpu()
    counts = torch.bincount(strongest.flatten(), minlength=len(maps))
    named = [int(i) for i in counts.argsort(descending=True)[:NAMED_LATENTS] if counts[i] > 0]
    colours = np.tile(to_rgba(OTHERS), (len(maps), 1))
    colours[named] = [to_rgba(colour) for colour in PALETTE[: len(named)]]
    show_grey(ax, scene, 'strongest latent')
    show_cells(ax, colours[strongest.numpy()], stride)
    share = counts / counts.sum()
    handles = [Patch(color=colours[i], label=f'latent {i}: {_per_cent(share[i])}') for i in named]
    rest = 1 - share[named].sum()
    if len(named) < (counts > 0).sum():
        text = f'{len(maps) - len(named)} others: {_per_cent(rest)}'
        handles.append(Patch(color=OTHERS, label=text))
    return handles


def _per_cent(share: Tensor) -> str:
    return f'{share:.0%}' if share >= 0.005 else '< 1%'


def add_legend(ax: Axes, handles: list[Patch], **place) -> None:
    ax.legend(
        handles=handles,
        **place,
        fontsize=8,
        frameon=False,
        title='share of the tokens',
        title_fontsize=8,
        alignment='left',
    )


def summary(request: Request) -> Figure:
    """The strongest latents, and where three of them look, in the layer in which they differ most.

    In some layers, of models trained for a short time above all, every latent looks at the same.
    """
    backbone, scene = request.backbone, request.scene
    layers = attention_layers(backbone)
    found = request.record(layers)
    name, (over_tokens, over_latents) = max(
        (
            (name, [side.mean(0) for side in attention_maps(backbone, layer, found[name], size)])
            for size in [request.inputs.shape[2:]]
            for name, layer in layers.items()
        ),
        key=lambda one: float(one[1][0].std(0).mean()),
    )
    layer, order = layers[name], differing(over_tokens, 3)
    stride = backbone.patch_stride
    panels = [Panel(f'latent {i} looks at', over_tokens[i], stride) for i in order]
    heads = f'mean of {layer.num_heads} heads'
    title = f'BiXT, layer {name}, where the latents differ most: latents and the image ({heads})'
    note = (
        'above: each token in the colour of the latent that it pays most attention to · below: '
        f'what three latents that differ look at; {RED_AND_BLUE} over all tokens'
    )
    figure, axes = make_figure(title, 2, 3, 3.0, scene.height / scene.width, note)
    show_image(axes[0, 0], scene)
    handles = show_strongest(axes[0, 1], scene, over_latents, stride)
    axes[0, 2].set_axis_off()
    add_legend(axes[0, 2], handles, loc='center left')
    norm = common_norm(panels)
    for ax, panel in zip(axes[1], panels, strict=True):
        show_panel(ax, scene, panel, norm)
    add_colour_bar(figure, axes[1], norm)
    return figure


def differing(maps: Tensor, count: int) -> list[int]:
    """Which of maps (M,H',W') differ most: the farthest from the mean, then from those chosen."""
    flat = maps.flatten(1)
    distance = torch.cdist(flat, flat.mean(0, keepdim=True))[:, 0]
    chosen = []
    for _ in range(min(count, len(maps))):
        chosen.append(int(distance.argmax()))
        distance = torch.cdist(flat, flat[chosen]).amin(1)
    return chosen
