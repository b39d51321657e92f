"""Errors of a segmentation near boundaries.

Pixels in the band around true boundaries are wrong in two ways: if the truth has the predicted
class nearby, a boundary was missed or moved; else the class is wrong. Errors elsewhere are dark.
"""

from collections.abc import Sequence
from enum import IntEnum

import cv2
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mmbixt.evaluation.boundary import band_pixels, image_sums, near_other_labels, scores
from mmbixt.visualization.palette import distinct_palette

WHITE = (255, 255, 255)
PANEL, LINE = 3.3, 0.19  # inches: the longer side of a panel, and a line of a legend


class Pixel(IntEnum):
    """Kinds of pixels in `error_map`."""

    OUTSIDE = 0  # not in the band, correct
    IGNORED = 1  # without a true label
    FAR = 2  # not in the band, wrong
    RIGHT = 3  # in the band, correct
    MISSED = 4  # in the band, wrong; the truth has the predicted class within the band's width
    WRONG = 5  # in the band, wrong; the truth does not have it


# colour and text; colour-blind readers can distinguish blue, orange and grey
LEGEND = {
    Pixel.RIGHT: ((200, 200, 200), '{:.1%} of the band: right'),
    Pixel.MISSED: (
        (60, 150, 255),
        '{:.1%} boundary missed or moved: the truth\nhas the predicted class within {} px',
    ),
    Pixel.WRONG: (
        (255, 110, 0),
        '{:.1%} wrong class: the truth does not have\nthe predicted class within {} px',
    ),
    Pixel.FAR: ((100, 62, 32), 'wrong outside of the band'),
    Pixel.IGNORED: (WHITE, 'no true label: not counted'),
}


def error_map(
    truth: np.ndarray, prediction: np.ndarray, width: int | float, ignore_index: int = 255
) -> np.ndarray:
    """The `Pixel` (H,W) of each pixel, uint8; arguments are those of `error_figure`.

    Distances are Chebyshev distances, as in :mod:`mmbixt.evaluation.boundary`; pixels without a
    true label form no boundary.
    """
    valid = truth != ignore_index
    distance = band_pixels(width, truth.shape)
    labels = np.where(valid, truth, 0).astype(np.uint16)  # a type that OpenCV filters
    band = near_other_labels(labels, valid, [distance])[distance]
    kinds = np.where(valid, Pixel.OUTSIDE, Pixel.IGNORED).astype(np.uint8)
    kinds[valid & (truth != prediction)] = Pixel.FAR
    kinds[band] = np.where(truth == prediction, Pixel.RIGHT, Pixel.WRONG)[band]
    wrong = kinds == Pixel.WRONG
    kernel = np.ones((2 * distance + 1,) * 2, np.uint8)
    for label in np.unique(prediction[wrong]):
        near = cv2.dilate((valid & (truth == label)).view(np.uint8), kernel).view(bool)
        kinds[wrong & near & (prediction == label)] = Pixel.MISSED
    return kinds


def error_figure(
    image: np.ndarray,
    truth: np.ndarray,
    prediction: np.ndarray,
    classes: Sequence[str],
    palette: Sequence[Sequence[int]] | None,
    width: int | float,
    title: str,
    ignore_index: int = 255,
) -> Figure:
    """An image, its truth, a prediction, and the errors in the band around true boundaries.

    Args:
        image: (H,W,3), RGB.
        truth: label map (H,W).
        prediction: label map (H,W).
        classes: K names, by label.
        palette: K colours, by label; None for generated ones.
        width: width of the band, in pixels (int) or as a fraction of the diagonal (float below 1).
        title: title of the figure.
        ignore_index: true label of pixels that do not count.
    """
    sums = image_sums(truth, prediction, len(classes), (width,), (), (), ignore_index)
    kinds = error_map(truth, prediction, width, ignore_index)
    palette = distinct_palette(len(classes)) if palette is None else palette
    truth = np.where(truth == ignore_index, -1, truth.astype(np.int64))
    dark = 15 + 0.45 * cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    errors = np.repeat(dark[..., None].astype(np.uint8), 3, axis=-1)
    for kind, (colour, _) in LEGEND.items():
        errors[kinds == kind] = colour
    distance = band_pixels(width, truth.shape)
    panels = {
        'image': image,
        'truth': _paint(truth, palette),
        'prediction': _paint(prediction, palette),
        f'errors within {distance} px of true boundaries': errors,
    }
    present = [i for i in np.union1d(truth, prediction) if 0 <= i < len(classes)]
    figure = _draw_panels(
        panels, [_patch(palette[i], classes[i]) for i in present], _error_legend(kinds, distance)
    )
    figure.suptitle(title, fontsize=11)
    figure.supxlabel(_caption(scores(sums), distance), fontsize=9)
    return figure


def render(figure: Figure) -> np.ndarray:
    """The pixels of a figure (H,W,3), RGB."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.ascontiguousarray(np.asarray(canvas.buffer_rgba())[..., :3])


def _draw_panels(
    panels: dict[str, np.ndarray], class_legend: Sequence[Patch], error_legend: Sequence[Patch]
) -> Figure:
    """Four panels (H,W,3) by their titles, two by two, and a legend below each column."""
    shape = panels['image'].shape[:2]
    height, width = (PANEL * side / max(shape) for side in shape)
    longest = max((len(patch.get_label()) for patch in class_legend), default=0)
    columns = max(1, 44 // (longest + 6))
    lines = max(7, -(-len(class_legend) // columns))  # the other legend has at most 7
    size = (2 * max(width, PANEL) + 0.2, 2 * height + LINE * lines + 1.05)
    figure = Figure(figsize=size, layout='compressed', dpi=200)
    axes = figure.subplots(2, 2)
    for ax, (name, panel) in zip(axes.flat, panels.items(), strict=True):
        ax.imshow(panel)
        ax.set(xticks=(), yticks=())
        ax.set_title(name, fontsize=10, pad=3)
    options = dict(loc='upper center', bbox_to_anchor=(0.5, 0), fontsize=9, frameon=False)
    axes[1, 0].legend(handles=class_legend, ncols=columns, handlelength=1.2, **options)
    axes[1, 1].legend(handles=error_legend, handlelength=1.2, **options)
    return figure


def _paint(labels: np.ndarray, palette: Sequence[Sequence[int]]) -> np.ndarray:
    """A label map (H,W) in the colours of its classes (H,W,3); other labels are white."""
    known = (labels >= 0) & (labels < len(palette))
    return np.array([*palette, WHITE], np.uint8)[np.where(known, labels, len(palette))]


def _caption(values: dict[str, float], distance: int) -> str:
    """The scores of the image, as text."""
    band = next(name.removesuffix('/mIoU') for name in values if name.startswith('band'))
    lines = []
    for where, text in ((band, f'band of {distance} px'), ('all', 'whole image')):
        iou, accuracy = (values[f'{where}/{name}'] for name in ('mIoU', 'aAcc'))
        lines.append(f'{text}: mIoU {iou:.1f}%, {accuracy:.1f}% of pixels right')
    return '\n'.join(lines)


def _error_legend(kinds: np.ndarray, distance: int) -> list[Patch]:
    """Legend of the kinds of pixels that there are, with their shares of the band."""
    count = np.bincount(kinds.ravel(), minlength=len(Pixel))
    share = count / max(count[Pixel.RIGHT :].sum(), 1)
    entries = ((kind, *entry) for kind, entry in LEGEND.items() if count[kind])
    return [_patch(colour, text.format(share[kind], distance)) for kind, colour, text in entries]


def _patch(colour: Sequence[int], label: str) -> Patch:
    return Patch(facecolor=np.divide(colour, 255), edgecolor='0.3', label=label)
