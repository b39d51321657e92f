"""Panels with heat maps on an image: a title above them, a colour bar, and a sentence below."""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor

COLOURS = 'RdYlBu_r'  # pale in the middle of a scale
OPACITY = 0.6  # of a heat map on the image
WIDTH, DPI = 8, 150  # of a picture in inches; readable in half of a page
STROKE = [withStroke(linewidth=3.5, foreground='black')]  # of marks, so that they stand out
RED_AND_BLUE = 'red is more, blue is less than an equal share'


class View(NamedTuple):
    """An image, in the coordinates of the network's inputs."""

    image: np.ndarray  # (h,w,3) in uint8, of any size
    height: int  # pixels of the inputs that it fills, from the top left;
    width: int  # the rest is padding, and is not drawn
    point: tuple[float, float]  # (x, y) in pixels of the inputs

    def cell(self, stride: int) -> tuple[int, int]:
        """Row and column of the point in a feature map."""
        return int(self.point[1] // stride), int(self.point[0] // stride)


class Panel(NamedTuple):
    """The image, with a heat map or colours on it."""

    caption: str
    # a heat map (H',W'), NaN for cells without colour; or colours (H',W',3); None for the image
    values: Tensor | None = None
    stride: int = 1  # pixels from one cell to the next
    colour: str | Sequence[float] = 'black'  # of the caption, which is bold in other colours


class Scale(NamedTuple):
    """What the colours of heat maps mean."""

    norm: Normalize
    label: str
    ticks: Sequence[float]
    unit: str = ''


def sheet(
    view: View,
    panels: Sequence[Panel | None],
    title: str,
    sentence: str,
    columns: int,
    scale: Scale | None = None,
) -> tuple[Figure, list[Axes]]:
    """A figure of panels, row by row, and their axes; None leaves an empty place.

    Without a scale, heat maps are attention as a multiple of uniform attention.
    """
    scale = scale or times_uniform(panels)
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    fontsize = 8 if columns < 8 else 6  # of captions
    side = (WIDTH - 0.9) / columns - 0.08
    title, sentence = textwrap.fill(title, 78), textwrap.fill(sentence, 118)
    height = rows * (side * view.height / view.width + fontsize / 40) + 0.85
    height += 0.25 * title.count('\n') + 0.16 * sentence.count('\n')
    figure = Figure(figsize=(WIDTH, height), layout='compressed', dpi=DPI)
    figure.suptitle(title, fontsize=12)
    figure.supxlabel(sentence, fontsize=9, x=0.02, ha='left')
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes[len(panels) :]:
        ax.remove()
    axes = axes[: len(panels)]
    for ax, panel in zip(axes, panels, strict=True):
        ax.set_axis_off()
        if panel is not None:
            _show(ax, view, panel, scale.norm)
            weight = 'normal' if panel.colour == 'black' else 'bold'
            options = dict(fontsize=fontsize, color=panel.colour, fontweight=weight)
            ax.set_title(panel.caption, pad=3, **options)
    # beyond the scale the colours stay the same
    options = dict(extend='both', extendfrac=0.03, fraction=0.03, pad=0.01, aspect=6 * height)
    options |= dict(ticks=scale.ticks, format=f'{{x:.3g}}{scale.unit}')
    bar = figure.colorbar(ScalarMappable(scale.norm, COLOURS), ax=axes, **options)
    bar.set_label(scale.label, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    bar.minorticks_off()
    return figure, axes


def times_uniform(panels: Sequence[Panel]) -> Scale:
    """One scale for all panels: logarithmic, from 1 / x to x, where x is the 99.5 % quantile.

    Logarithmic, because attention may be almost uniform or a single peak. x is at least 1.1, so
    that small differences do not get full colours.
    """
    heat_maps = [p.values for p in panels if p.values is not None and p.values.ndim == 2]
    values = torch.cat([heat_map.flatten() for heat_map in heat_maps]).float().cpu()
    values = values[values.isfinite()]  # none if a point attends only to padding
    highest = max(float(np.quantile(values, 0.995)), 1.1) if len(values) else 1.1
    ticks = np.geomspace(1 / highest, highest, 5)
    return Scale(LogNorm(1 / highest, highest), 'attention (1 × = uniform)', ticks, ' ×')


def _show(ax: Axes, view: View, panel: Panel, norm: Normalize) -> None:
    """Draw the image, or the image in grey below a heat map."""
    box = (0, view.width, view.height, 0)
    shown = view.image if panel.values is None else view.image.mean(-1)
    ax.imshow(shown, extent=box, cmap='gray', vmin=0, vmax=255)
    if panel.values is not None:
        rows, columns = panel.values.shape[:2]
        cells = (0, columns * panel.stride, rows * panel.stride, 0)
        heat = dict(cmap=COLOURS, norm=norm) if panel.values.ndim == 2 else {}
        values = panel.values.float().cpu().numpy()
        ax.imshow(values, extent=cells, alpha=OPACITY, interpolation='nearest', **heat)
    ax.set(xlim=(0, view.width), ylim=(view.height, 0))  # cells may reach beyond the image


def mark_point(ax: Axes, view: View) -> None:
    ax.plot(*view.point, 'w+', ms=10, mew=2, clip_on=False, path_effects=STROKE)


def outline(
    ax: Axes, box: tuple[int, int, int, int], stride: int, colour: str, text: str = ''
) -> None:
    """Draw a box (row, column, height, width) in cells, with a text."""
    top, left, height, width = (side * stride for side in box)
    options = dict(fill=False, edgecolor=colour, linewidth=1.5, path_effects=STROKE)
    ax.add_patch(Rectangle((left, top), width, height, **options))
    options = dict(ha='center', va='center', fontsize=8, color='white', clip_on=True)
    ax.text(left + width / 2, top + height / 2, text, path_effects=STROKE, **options)
