"""Heat maps on an image: what the pictures of all families are made of."""

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

COLOURS = 'RdYlBu_r'  # pale where attention is as without any preference
OPACITY = 0.6  # of a heat map on the image
DPI = 110
# one unit for all families: 1 is what is without any preference
TIMES_EVEN = 'attention (1 × = evenly spread)'
RED_AND_BLUE = 'red: more, blue: less than if it were spread evenly'


class Scene(NamedTuple):
    """The image in the coordinates of the network's inputs, in which everything is drawn.

    Attributes:
        image: (H,W,3) in uint8, of any size.
        height: of the part of the inputs that it fills, from the top left corner, in pixels; the
            rest is padding, and is not drawn.
        width: of the same.
        point: (x, y) in pixels of the inputs.
    """

    image: np.ndarray
    height: int
    width: int
    point: tuple[float, float]


class Panel(NamedTuple):
    """An image with something on it.

    Attributes:
        caption: a few words.
        values: a heat map (H',W'), with NaN for cells that stay uncoloured, or colours (H',W',4);
            None for the image alone.
        stride: pixels from one cell to the next.
    """

    caption: str
    values: Tensor | None = None
    stride: int = 1


IMAGE = Panel('image')


def sheet(
    scene: Scene,
    panels: Sequence[Panel | None],
    title: str,
    note: str,
    columns: int,
    panel_width: float,
    label: str = TIMES_EVEN,
    own_scales: bool = False,
) -> tuple[Figure, list[Axes]]:
    """Panels row by row; the figure and the axes of the panels.

    Args:
        scene: the image.
        panels: what to draw; None leaves a place empty.
        title: what is shown.
        note: how to read it.
        columns: the most panels in a row.
        panel_width: in inches.
        label: of the colour bar.
        own_scales: for each panel colours and a colour bar of its own, not one for all: of layers
            one may attend to a single place and the next almost evenly.
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    width = max(columns * panel_width + 0.9 * (columns if own_scales else 1), 8.0)
    title, note = _wrap(title, int(9 * width)), _wrap(note, int(13 * width))
    height = rows * (panel_width * scene.height / scene.width + 0.22) + 0.25
    height += 0.22 * len(title.splitlines()) + 0.16 * len(note.splitlines())
    figure = Figure(figsize=(width, height), layout='constrained', dpi=DPI)
    figure.suptitle(title, fontsize=13)
    figure.supxlabel(note, fontsize=9, color='0.3')
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes:
        ax.set_axis_off()
    groups = [([ax], [panel]) for ax, panel in zip(axes, panels, strict=False)]
    for some_axes, some_panels in groups if own_scales else [(axes, panels)]:
        norm = common_norm(some_panels)
        for ax, panel in zip(some_axes, some_panels, strict=False):
            if panel is not None:
                _show(ax, scene, panel, norm)
        slim = 20 if own_scales else 6 * height  # a sixth of an inch wide
        _add_colour_bar(figure, some_axes, norm, label, aspect=slim)
    return figure, axes[: len(panels)]


def _wrap(text: str, characters: int) -> str:
    return '\n'.join(textwrap.fill(line, characters) for line in text.splitlines())


def common_norm(panels: Sequence[Panel | None]) -> LogNorm:
    """One scale, with 1 in the middle, up to what all but one in 200 cells stay below.

    Logarithmic, since attention may be all but even or a single peak. Differences below a tenth are
    not blown up to full colours.
    """
    heat_maps = [p.values for p in panels if p and p.values is not None and p.values.ndim == 2]
    values = torch.cat([heat_map.flatten() for heat_map in heat_maps]).float().cpu()
    highest = max(float(np.nanquantile(values, 0.995)), 1.1)
    return LogNorm(1 / highest, highest)


def _show(ax: Axes, scene: Scene, panel: Panel, norm: LogNorm) -> None:
    """The image, or the image in grey under the colours of a heat map."""
    box = (0, scene.width, scene.height, 0)
    if panel.values is None:
        ax.imshow(scene.image, extent=box)
    else:
        ax.imshow(scene.image.mean(-1), extent=box, cmap='gray', vmin=0, vmax=255)
        rows, columns = panel.values.shape[:2]
        cells = (0, columns * panel.stride, rows * panel.stride, 0)
        heat = dict(cmap=COLOURS, norm=norm) if panel.values.ndim == 2 else {}
        values = panel.values.float().cpu().numpy()
        ax.imshow(values, extent=cells, alpha=OPACITY, interpolation='nearest', **heat)
    ax.set(xlim=(0, scene.width), ylim=(scene.height, 0))  # cells may reach beyond the image
    ax.set_title(panel.caption, fontsize=9, pad=2)


def _add_colour_bar(
    figure: Figure, axes: list[Axes], norm: LogNorm, label: str, aspect: float
) -> None:
    """Its ends are open: beyond them the colours stay the same."""
    bar = figure.colorbar(
        ScalarMappable(norm, COLOURS),
        ax=axes,
        ticks=np.geomspace(norm.vmin, norm.vmax, 5),
        format='{x:.3g} ×',
        **dict(extend='both', extendfrac=0.03, fraction=0.03, pad=0.01, aspect=aspect),
    )
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=9)
    bar.minorticks_off()


def mark_point(ax: Axes, scene: Scene) -> None:
    stroke = [withStroke(linewidth=5, foreground='black')]
    ax.plot(*scene.point, 'w+', ms=12, mew=2.5, clip_on=False, path_effects=stroke)


def outline(
    ax: Axes, box: tuple[int, int, int, int], stride: int, colour: str, text: str = ''
) -> None:
    """A box (row, column, height, width) in cells, with a word in its corner."""
    top, left, height, width = (side * stride for side in box)
    stroke = [withStroke(linewidth=3.5, foreground='black')]
    options = dict(fill=False, edgecolor=colour, linewidth=1.8, path_effects=stroke)
    ax.add_patch(Rectangle((left, top), width, height, **options))
    if text:
        paper = dict(boxstyle='square,pad=0.15', facecolor='black', edgecolor='none', alpha=0.6)
        options = dict(va='top', fontsize=7, color='white', clip_on=True, bbox=paper)
        ax.annotate(text, (left, top), (3, -3), textcoords='offset points', **options)
