"""Heat maps on an image: what the pictures of all families are made of."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

COLOURS = 'RdYlBu_r'  # pale where attention is as without any preference
OPACITY = 0.6  # of a heat map on the image
DPI = 110
# one unit for all families: 1 is what is without any preference
TIMES_EVEN = 'attention (1 × = evenly spread)'
RED_AND_BLUE = 'red: more, blue: less than if it were spread evenly'


@dataclass(frozen=True)
class Scene:
    """The image in the coordinates of the network's inputs, in which everything is drawn.

    Attributes:
        image: (H,W,3) in uint8, of any size.
        height: of the part of the inputs that it fills, from the top left corner, in pixels; the
            rest is padding, and is not drawn.
        width: of the same.
    """

    image: np.ndarray
    height: int
    width: int

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, right, bottom, top in pixels, as matplotlib wants them."""
        return (0, self.width, self.height, 0)


class Panel(NamedTuple):
    """A heat map with a caption.

    Attributes:
        caption: a few words.
        values: (H',W'), a cell of the network's map each; NaN for those without any, which stay
            uncoloured.
        stride: pixels from one cell to the next.
    """

    caption: str
    values: Tensor
    stride: int

    @property
    def cells(self) -> np.ndarray:
        return self.values.float().cpu().numpy()


def show_image(ax: Axes, scene: Scene) -> None:
    ax.imshow(scene.image, extent=scene.box)
    _finish(ax, scene, 'image')


def show_grey(ax: Axes, scene: Scene, caption: str) -> None:
    """The image as a ground for colours that are to be told apart."""
    ax.imshow(scene.image.mean(-1), extent=scene.box, cmap='gray', vmin=0, vmax=255)
    _finish(ax, scene, caption)


def show_panel(ax: Axes, scene: Scene, panel: Panel, norm: LogNorm) -> None:
    """The image in grey under the colours of a heat map."""
    show_grey(ax, scene, panel.caption)
    show_cells(ax, panel.cells, panel.stride, cmap=COLOURS, norm=norm)


def _finish(ax: Axes, scene: Scene, caption: str) -> None:
    ax.set(xlim=(0, scene.width), ylim=(scene.height, 0))
    ax.set_axis_off()
    ax.set_title(caption, fontsize=9, pad=2)


def show_cells(ax: Axes, values: np.ndarray, stride: int, **options) -> None:
    """Cells (H',W') or coloured ones (H',W',4), each as wide as the pixels that it stands for."""
    rows, columns = values.shape[:2]
    box = (0, columns * stride, rows * stride, 0)
    limits = ax.get_xlim(), ax.get_ylim()
    ax.imshow(values, extent=box, alpha=OPACITY, interpolation='nearest', **options)
    ax.set(xlim=limits[0], ylim=limits[1])  # cells may reach beyond the image


def common_norm(panels: Sequence[Panel]) -> LogNorm:
    """One scale, with 1 in the middle, up to what all but one in 200 cells stay below.

    Logarithmic, since attention may be all but even or a single peak. Differences below a tenth are
    not blown up to full colours.
    """
    values = np.concatenate([panel.cells.ravel() for panel in panels])
    highest = max(float(np.nanquantile(values, 0.995)), 1.1)
    return LogNorm(1 / highest, highest)


def add_colour_bar(
    figure: Figure, axes: Iterable[Axes], norm: LogNorm, label: str = TIMES_EVEN
) -> None:
    """One for all axes. Its ends are open: beyond them the colours stay the same."""
    axes = list(axes)
    slim = 6 * figure.get_figheight()  # a sixth of an inch wide
    bar = figure.colorbar(
        ScalarMappable(norm, COLOURS),
        ax=axes,
        extend='both',
        extendfrac=0.03,
        fraction=0.03,
        pad=0.01,
        aspect=slim if len(axes) > 1 else 20,
    )
    bar.set_label(label, fontsize=9)
    ticks = [norm.vmax**power for power in (-1, -0.5, 0, 0.5, 1)]
    bar.set_ticks(ticks, labels=[f'{tick:.3g} ×' for tick in ticks], minor=False, fontsize=9)
    bar.minorticks_off()


def make_figure(
    title: str,
    rows: int,
    columns: int,
    panel_width: float,
    ratio: float,
    note: str,
    bars: int = 1,
) -> tuple[Figure, np.ndarray]:
    """A figure and its axes (rows,columns), with a title and small lines under it that explain.

    Args:
        title: what is shown.
        rows: of axes.
        columns: of axes.
        panel_width: in inches.
        ratio: height of a panel by its width.
        note: how to read it.
        bars: colour bars side by side.
    """
    width = max(columns * panel_width + bars * 0.9, 8.0)
    title = _wrap(title, characters=9 * width)
    note = _wrap(note, characters=13 * width)
    height = rows * (panel_width * ratio + 0.22) + 0.25
    height += 0.22 * len(title.splitlines()) + 0.16 * len(note.splitlines())
    figure = Figure(figsize=(width, height), layout='constrained', dpi=DPI)
    figure.suptitle(title, fontsize=13)
    figure.supxlabel(note, fontsize=9, color='0.3')
    return figure, figure.subplots(rows, columns, squeeze=False)


def _wrap(text: str, characters: float) -> str:
    return '\n'.join(textwrap.fill(line, int(characters)) for line in text.splitlines())


def contact_sheet(
    scene: Scene,
    panels: Sequence[Panel],
    title: str,
    note: str,
    label: str = TIMES_EVEN,
    columns: int = 8,
    panel_width: float = 1.5,
) -> Figure:
    """Heat maps row by row, all in the same colours, one colour bar."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = make_figure(title, rows, columns, panel_width, scene.height / scene.width, note)
    norm = common_norm(panels)
    for ax, panel in zip(_used(axes, len(panels)), panels, strict=True):
        show_panel(ax, scene, panel, norm)
    add_colour_bar(figure, axes.flat, norm, label)
    return figure


def image_and_panels(
    scene: Scene, panels: Sequence[Panel], title: str, note: str, panel_width: float
) -> tuple[Figure, list[Axes]]:
    """The image, then heat maps in the same colours, one colour bar; the figure and their axes."""
    count = 1 + len(panels)
    columns = min(count, 4)
    ratio = scene.height / scene.width
    figure, axes = make_figure(title, -(-count // columns), columns, panel_width, ratio, note)
    used = _used(axes, count)
    show_image(used[0], scene)
    norm = common_norm(panels)
    for ax, panel in zip(used[1:], panels, strict=True):
        show_panel(ax, scene, panel, norm)
    add_colour_bar(figure, axes.flat, norm)
    return figure, used


def panels_of_own_scale(
    scene: Scene, panels: Sequence[Panel], title: str, note: str
) -> tuple[Figure, list[Axes]]:
    """Heat maps in two rows, each with a colour bar; the figure and their axes.

    For layers of which one may attend to a single place and the next almost evenly.
    """
    columns = -(-len(panels) // 2)
    ratio = scene.height / scene.width
    figure, axes = make_figure(title, 2, columns, 4.0, ratio, note, bars=columns)
    used = _used(axes, len(panels))
    for ax, panel in zip(used, panels, strict=True):
        norm = common_norm([panel])
        show_panel(ax, scene, panel, norm)
        add_colour_bar(figure, [ax], norm)
    return figure, used


def _used(axes: np.ndarray, count: int) -> list[Axes]:
    """The first axes; the others become invisible."""
    for ax in axes.flat[count:]:
        ax.set_axis_off()
    return list(axes.flat[:count])


def mark_point(ax: Axes, x: float, y: float) -> None:
    for colour, size, width in (('black', 13, 4), ('white', 11, 2)):
        ax.plot(x, y, '+', color=colour, markersize=size, markeredgewidth=width, clip_on=False)


def outline(ax: Axes, box: tuple[float, float, float, float], colour: str, text: str = '') -> None:
    """A box (left, top, width, height) in pixels, with a word in its corner."""
    left, top, width, height = box
    for line, edge in ((3.5, 'black'), (1.8, colour)):
        ax.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor=edge, lw=line))
    if text:
        ax.annotate(
            text,
            (left, top),
            (3, -3),
            textcoords='offset points',
            ha='left',
            va='top',
            fontsize=7,
            color='white',
            clip_on=True,
            bbox=dict(boxstyle='square,pad=0.15', facecolor='black', edgecolor='none', alpha=0.6),
        )
