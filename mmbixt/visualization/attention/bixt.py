"""BiXT: what its latents attend to in the image, and which latents the tokens attend to."""

from collections.abc import Callable
from functools import partial

import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from mmbixt.backbones import BiXT
from mmbixt.layers import BidirectionalAttention
from mmbixt.visualization.attention.drawing import IMAGE, RED_AND_BLUE, Panel, sheet
from mmbixt.visualization.attention.pictures import Layer, Pictures

OTHERS = '0.6'  # latents without a colour of their own
# of the latents that most tokens look at; they are told apart on an image
PALETTE = [
    *('#e6194b', '#3cb44b', '#ffe119', '#4363d8', '#f58231'),
    *('#911eb4', '#42d4f4', '#f032e6', '#9a6324', '#bfef45'),
]

# kinds of contact sheets: of latents over tokens, of tokens over latents
SHEETS = {
    'latents_over_image': (
        'where in the image each of the {} latents looks',
        'a panel for each latent, with its number · attention that it pays to tokens: '
        f'{RED_AND_BLUE} over all tokens',
    ),
    'image_over_latents': (
        'which parts of the image look at each of the {} latents',
        'a panel for each latent, with its number · attention that tokens pay to it: '
        f'{RED_AND_BLUE} over all latents',
    ),
}


def attention_maps(layer: Layer) -> tuple[Tensor, Tensor]:
    """Both attentions on the grid of the tokens, as multiples of an even spread.

    Returns:
        (h,M,H',W') each: of each latent over the tokens (their mean is 1), and of each token over
        the latents (the mean over latents is 1).
    """
    both = layer.module.attention_maps(*layer.inputs)  # (1,h,M,N) each
    latents, tokens = both[0].shape[2:]
    over_tokens, over_latents = (maps[0].unflatten(-1, layer.grid) for maps in both)
    return over_tokens * tokens, over_latents * latents


class BiXTPictures(Pictures):
    @staticmethod
    def attention_layers(backbone: BiXT) -> dict[str, BidirectionalAttention]:
        blocks = enumerate(backbone.blocks)
        return {str(i): block.cross_attention_latents_token.attn for i, block in blocks}

    def stride(self, layer: str) -> int:
        return self.backbone.patch_stride

    def figures(self, layer: Layer) -> dict[str, Callable[[], Figure]]:
        figures = {}
        for caption, heads in self.choose_heads(layer, 'mean').items():
            suffix = '' if heads == slice(None) else f'_head_{heads.start:02d}'
            name = f'BiXT, layer {layer.name} ({caption})'
            for side, kind in enumerate(SHEETS):
                figures[kind + suffix] = partial(self._contact_sheet, layer, heads, name, side)
            figures[f'strongest_latents{suffix}'] = partial(self._strongest, layer, heads, name)
        return figures

    def _contact_sheet(self, layer: Layer, heads: slice, name: str, side: int) -> Figure:
        """A panel for each latent: of its attention over the tokens (0), or of theirs (1)."""
        maps = attention_maps(layer)[side][heads].mean(0)
        panels = [Panel(str(i), one, layer.stride) for i, one in enumerate(maps)]
        title, note = list(SHEETS.values())[side]
        title = f'{name}: {title.format(len(panels))}'
        columns = 8 if len(panels) <= 64 else 16
        return sheet(self.scene, panels, title, note, columns, panel_width=1.5)[0]

    def _strongest(self, layer: Layer, heads: slice, name: str) -> Figure:
        """The latent that each token attends to most, and how much."""
        maps = attention_maps(layer)[1][heads].mean(0)
        strongest, handles, _ = strongest_latents(maps, layer.stride)
        panels = [IMAGE, strongest, Panel('its attention', maps.amax(0), layer.stride)]
        title = f'{name}: the latent that each token looks at most'
        note = (
            'middle: each token in the colour of the latent that it pays most attention to '
            f'(numbers as in the contact sheets) · right: how much that is; {RED_AND_BLUE} over '
            'all latents'
        )
        figure, axes = sheet(self.scene, panels, title, note, columns=3, panel_width=4.2)
        add_legend(axes[1], handles, loc='upper left', bbox_to_anchor=(1, 1))
        return figure

    def summary(self) -> Figure:
        """The strongest latents and what three of them look at, where the latents differ most.

        In some layers all latents look at the same, above all after a short training.
        """
        layers = self.record(list(self.attention_layers(self.backbone)))
        maps = [[side.mean(0) for side in attention_maps(layer)] for layer in layers]
        layer, (over_tokens, over_latents) = max(
            zip(layers, maps, strict=True),
            key=lambda item: float(item[1][0].std(0, correction=0).mean()),
        )
        strongest, handles, named = strongest_latents(over_latents, layer.stride)
        panels = [IMAGE, strongest, None] + [
            Panel(f'latent {i} looks at', over_tokens[i], layer.stride) for i in named[:3]
        ]
        title = (
            f'BiXT, layer {layer.name}, where the latents differ most: latents and the image '
            f'(mean of {layer.module.num_heads} heads)'
        )
        note = (
            'above: each token in the colour of the latent that it pays most attention to · '
            f'below: what the three strongest latents look at; {RED_AND_BLUE} over all tokens'
        )
        figure, axes = sheet(self.scene, panels, title, note, columns=3, panel_width=3.0)
        add_legend(axes[2], handles, loc='center left')
        return figure


def strongest_latents(maps: Tensor, stride: int) -> tuple[Panel, list[Patch], list[int]]:
    """Each token in the colour of the latent (of maps (M,H',W')) that it attends to most.

    Returns:
        The panel, what goes into a legend, and the latents that it names, the strongest first.
    """
    strongest = maps.argmax(0).cpu()
    counts = torch.bincount(strongest.flatten(), minlength=len(maps))
    order = counts.argsort(descending=True)
    named = [int(i) for i in order[: len(PALETTE)] if counts[i] > 0]
    colours = dict.fromkeys(range(len(maps)), OTHERS) | dict(zip(named, PALETTE, strict=False))
    share = counts / counts.sum()
    handles = [Patch(color=colours[i], label=f'latent {i}: {share[i]:.1%}') for i in named]
    if len(named) < (counts > 0).sum():
        rest = 1 - share[named].sum()
        text = f'{len(maps) - len(named)} others: {rest:.1%}'
        handles.append(Patch(color=OTHERS, label=text))
    table = torch.tensor([to_rgba(colour) for colour in colours.values()])
    return Panel('strongest latent', table[strongest], stride), handles, named


def add_legend(ax: Axes, handles: list[Patch], **place) -> None:
    title = 'share of the tokens'
    options = dict(fontsize=8, title_fontsize=8, frameon=False, alignment='left')
    ax.legend(handles=handles, title=title, **options, **place)
