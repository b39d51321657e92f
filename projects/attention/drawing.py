"""Panels with heat maps on an image: a title above them, a colour bar, and a sentence below."""

import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor, nn

COLOURS = 'RdYlBu_r'  # pale in the middle of a scale
OPACITY = 0.6  # of a heat map on the image
WIDTH, DPI = 8, 150  # of a picture in inches; readable in half of a page
STROKE = [withStroke(linewidth=3.5, foreground='black')]  # of marks, so that they stand out
RED_AND_BLUE = 'red is more, blue is less than an equal share'
Scale = tuple[Normalize, str, Sequence[float], str]  # of colours; its label, ticks and unit


class View(NamedTuple):
    """An image, (h,w,3) in uint8, and what to draw on it."""

    image: np.ndarray
    height: int  # pixels of the network's inputs that the image fills, from the top left;
    width: int  # the rest is padding, and is not drawn
    point: tuple[float, float] = (0, 0)  # (x, y) in pixels of the inputs
    heads: Sequence[int] | None = None  # None for the default
    all_latents: bool = False  # of BiXT, instead of a few

    def mean_of_heads(self, x: Tensor) -> Tensor:
        return (x if self.heads is None else x[list(self.heads)]).mean(0)

    @property
    def text_of_heads(self) -> str:
        numbers = ', '.join(map(str, self.heads or ()))
        several = 'mean of heads' if ',' in numbers else 'head'
        return f'{several} {numbers}' if numbers else 'mean of the heads'


class Layer(NamedTuple):
    """An attention layer in a forward pass."""

    name: str  # '7', or '2.5' for block 5 of stage 2, or 'class.1'
    module: nn.Module  # the attention
    inputs: tuple  # arguments of its forward
    stride: int  # pixels of the images from one cell of its feature map to the next
    grid: Sequence[int]  # H', W' of its feature map

    def cell(self, view: View) -> tuple[int, int]:
        """Row and column of the point in the feature map."""
        return int(view.point[1] // self.stride), int(view.point[0] // self.stride)


class Panel(NamedTuple):
    """The image, with a heat map (H',W') or colours (H',W',3) on it; NaN has no colour."""

    caption: str
    values: Tensor | None = None
    colour: str | Sequence[float] = 'black'  # of the caption, which is bold in other colours


def sheet(
    view: View,
    stride: int,
    panels: Sequence[Panel | None],
    texts: tuple[str, str],
    columns: int,
    scale: Scale | None = None,
) -> tuple[Figure, list[Axes]]:
    """A figure of panels (None leaves an empty place), whose heat maps have one stride, and their
    axes; texts are above and below. Without a scale, heat maps are multiples of uniform attention.
    """
    norm, label, ticks, unit = scale or times_uniform(panels)
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    fontsize = 8 if columns < 8 else 6  # of captions
    side = (WIDTH - 0.9) / columns - 0.08
    title, sentence = textwrap.fill(texts[0], 78), textwrap.fill(texts[1], 118)
    height = rows * (side * view.height / view.width + fontsize / 40) + 0.85
    height += 0.25 * title.count('\n') + 0.16 * sentence.count('\n')
    figure = Figure(figsize=(WIDTH, height), layout='compressed', dpi=DPI)
    figure.suptitle(title, fontsize=12)
    figure.supxlabel(sentence, fontsize=9, x=0.02, ha='left')
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax, panel in zip_longest(axes, panels):
        ax.set_axis_off()
        if panel is None:
            continue
        values, weight = panel.values, 'normal' if panel.colour == 'black' else 'bold'
        shown = view.image if values is None else view.image.mean(-1)  # grey below a heat map
        ax.imshow(shown, extent=(0, view.width, view.height, 0), cmap='gray', vmin=0, vmax=255)
        if values is not None:
            extent = (0, values.shape[1] * stride, values.shape[0] * stride, 0)
            heat = dict(cmap=COLOURS, norm=norm) if values.ndim == 2 else {}
            options = dict(extent=extent, alpha=OPACITY, interpolation='nearest', **heat)
            ax.imshow(values.float().cpu().numpy(), **options)
        ax.set(xlim=(0, view.width), ylim=(view.height, 0))  # cells may reach beyond the image
        options = dict(fontsize=fontsize, color=panel.colour, fontweight=weight)
        ax.set_title(panel.caption, pad=3, **options)
    # beyond the scale the colours stay the same
    options = dict(extend='both', extendfrac=0.03, fraction=0.03, pad=0.01, aspect=6 * height)
    options |= dict(ticks=ticks, format=f'{{x:.3g}}{unit}')
    bar = figure.colorbar(ScalarMappable(norm, COLOURS), ax=axes, **options)
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    bar.minorticks_off()
    return figure, axes[: len(panels)]


def times_uniform(panels: Sequence[Panel]) -> Scale:
    """Logarithmic, because attention may be almost uniform or a single peak: from 1 / x to x, where
    x is the 99.5 % quantile, at least 1.1, so that small differences do not get full colours."""
    values = [p.values.flatten() for p in panels if p.values is not None and p.values.ndim == 2]
    values = torch.cat(values).float().cpu()
    values = values[values.isfinite()].numpy()  # none if a point attends only to padding
    highest = max(float(np.quantile(values, 0.995)), 1.1) if len(values) else 1.1
    ticks = np.geomspace(1 / highest, highest, 5)
    return LogNorm(1 / highest, highest), 'attention (1 × = uniform)', ticks, ' ×'


def outline(
    ax: Axes, box: Sequence[int], stride: int, colour: str, text: str = '', point: tuple = ()
) -> None:
    """Draw a box (row, column, height, width) in cells, with a text or a point (x, y) in pixels."""
    top, left, height, width = (side * stride for side in box)
    options = dict(fill=False, edgecolor=colour, linewidth=1.5, path_effects=STROKE)
    ax.add_patch(Rectangle((left, top), width, height, **options))
    options = dict(ha='center', va='center', fontsize=8, color='white', clip_on=True)
    ax.text(left + width / 2, top + height / 2, text, path_effects=STROKE, **options)
    if point:
        ax.plot(*point, 'w+', ms=10, mew=2, clip_on=False, path_effects=STROKE)
