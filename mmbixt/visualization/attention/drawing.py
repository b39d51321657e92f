"""Panels with heat maps on an image, for the pictures of all families."""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor

COLOURS = 'RdYlBu_r'  # pale where attention is uniform
OPACITY = 0.6  # of a heat map on the image
WIDTH = 11  # of a picture in inches of 110 pixels
NARROW = 6  # of one for half of a page: half as many columns, so that its text is readable
# the unit of all families: 1 is uniform attention
TIMES_EVEN = 'attention (1 × = uniform)'
RED_AND_BLUE = 'red: more, blue: less than uniform attention'


class Scene(NamedTuple):
    """An image, in the coordinates of the network's inputs."""

    image: np.ndarray  # (h,w,3) in uint8, of any size
    height: int  # pixels of the inputs that it fills, from the top left;
    width: int  # the rest is padding, and is not drawn
    point: tuple[float, float]  # (x, y) in pixels of the inputs
    inches: float = WIDTH  # of the picture


class Panel(NamedTuple):
    """The image, with a heat map or colours on it."""

    caption: str
    # a heat map (H',W'), NaN for cells without colour; or colours (H',W',3)
    values: Tensor | None = None
    stride: int = 1  # pixels from one cell to the next


IMAGE = Panel('image')


def sheet(
    scene: Scene,
    panels: Sequence[Panel],
    title: str,
    note: str,
    columns: int,
    label: str = TIMES_EVEN,
    empty: int = 0,
) -> tuple[Figure, list[Axes]]:
    """A figure of panels, row by row, with a note below; and the axes of the panels, with at least
    ``empty`` more axes after them in ``figure.axes``."""
    width = scene.inches
    columns = min(columns if width == WIDTH else -(-columns // 2), len(panels))
    rows = -(-(len(panels) + empty) // columns)
    title, note = (textwrap.fill(text, int(n * width)) for text, n in ((title, 10), (note, 14)))
    side = (width - 0.9) / columns
    captions = [textwrap.fill(panel.caption, int(17 * side)) for panel in panels]
    more = max(caption.count('\n') for caption in captions)  # lines of captions
    height = rows * (side * scene.height / scene.width + 0.22 + 0.13 * more) + 0.25
    height += 0.22 * (title.count('\n') + 1) + 0.16 * (note.count('\n') + 1)
    figure = Figure(figsize=(width, height), layout='constrained', dpi=110 * WIDTH / width)
    figure.suptitle(title, fontsize=13)
    figure.supxlabel(note, fontsize=9, color='0.3')
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    norm = common_norm(panels)
    for ax in axes:
        ax.set_axis_off()
    for ax, panel, caption in zip(axes, panels, captions, strict=False):
        _show(ax, scene, panel, norm)
        ax.set_title(caption, fontsize=8, pad=2)
    bar = figure.colorbar(
        ScalarMappable(norm, COLOURS),
        ax=axes,
        ticks=np.geomspace(norm.vmin, norm.vmax, 5),
        format='{x:.3g} ×',
        label=label,
        extend='both',  # beyond the scale the colours stay the same
        extendfrac=0.03,
        **dict(fraction=0.03, pad=0.01, aspect=6 * height),  # of the axes; a sixth of an inch wide
    )
    bar.minorticks_off()
    return figure, axes[: len(panels)]


def common_norm(panels: Sequence[Panel]) -> LogNorm:
    """One scale for all panels: logarithmic, from 1 / x to x, where x is the 99.5 % quantile.

    Logarithmic, because attention may be almost uniform or a single peak. x is at least 1.1, so
    that small differences do not get full colours.
    """
    heat_maps = [p.values for p in panels if p.values is not None and p.values.ndim == 2]
    values = torch.cat([heat_map.flatten() for heat_map in heat_maps]).float().cpu()
    values = values[values.isfinite()]  # none if a point attends only to padding
    highest = max(float(np.quantile(values, 0.995)), 1.1) if len(values) else 1.1
    return LogNorm(1 / highest, highest)


def _show(ax: Axes, scene: Scene, panel: Panel, norm: LogNorm) -> None:
    """Draw the image, or the image in grey below a heat map."""
    box = (0, scene.width, scene.height, 0)
    shown = scene.image if panel.values is None else scene.image.mean(-1)
    ax.imshow(shown, extent=box, cmap='gray', vmin=0, vmax=255)
    if panel.values is not None:
        rows, columns = panel.values.shape[:2]
        cells = (0, columns * panel.stride, rows * panel.stride, 0)
        heat = dict(cmap=COLOURS, norm=norm) if panel.values.ndim == 2 else {}
        values = panel.values.float().cpu().numpy()
        ax.imshow(values, extent=cells, alpha=OPACITY, interpolation='nearest', **heat)
    ax.set(xlim=(0, scene.width), ylim=(scene.height, 0))  # cells may reach beyond the image


def mark_point(ax: Axes, scene: Scene) -> None:
    stroke = [withStroke(linewidth=5, foreground='black')]
    ax.plot(*scene.point, 'w+', ms=12, mew=2.5, clip_on=False, path_effects=stroke)


def outline(
    ax: Axes, box: tuple[int, int, int, int], stride: int, colour: str, text: str = ''
) -> None:
    """Draw a box (row, column, height, width) in cells, with a text."""
    top, left, height, width = (side * stride for side in box)
    stroke = [withStroke(linewidth=3.5, foreground='black')]
    options = dict(fill=False, edgecolor=colour, linewidth=1.8, path_effects=stroke)
    ax.add_patch(Rectangle((left, top), width, height, **options))
    middle = (left + width / 2, top + height / 2)
    options = dict(ha='center', va='center', fontsize=8, color='white', clip_on=True)
    ax.text(*middle, text, path_effects=stroke, **options)
