"""Kinds of errors against their definition for each pixel, and their figure."""

import numpy as np
import pytest
from label_maps import label_maps

from mmbixt.evaluation import image_sums, scores
from mmbixt.visualization.boundary_errors import LEGEND, Pixel, error_figure, error_map, render

CLASSES = ['sky', 'tree', 'car', 'road']
PALETTE = [(0, 0, 255), (0, 255, 0), (255, 0, 0), (9, 9, 9)]


def kind_by_hand(truth, prediction, width, y, x):
    if truth[y, x] == 255:
        return Pixel.IGNORED
    around = truth[max(0, y - width) : y + width + 1, max(0, x - width) : x + width + 1]
    near = {*around.ravel().tolist()} - {255}
    if len(near) == 1:
        return Pixel.OUTSIDE if truth[y, x] == prediction[y, x] else Pixel.FAR
    if truth[y, x] == prediction[y, x]:
        return Pixel.RIGHT
    return Pixel.MISSED if prediction[y, x] in near else Pixel.WRONG


@pytest.mark.parametrize('shape', [(20, 31), (1, 40)])
@pytest.mark.parametrize('width', [1, 5, 0.05])
def test_kinds_against_the_definition(shape, width):
    pixels = width if isinstance(width, int) else max(1, round(width * np.hypot(*shape)))
    truth, prediction = next(label_maps([shape], 0.4))
    by_hand = [kind_by_hand(truth, prediction, pixels, *at) for at in np.ndindex(shape)]
    np.testing.assert_array_equal(error_map(truth, prediction, width).ravel(), by_hand)
    shifted = np.where(truth == 255, 0, truth + 1)
    np.testing.assert_array_equal(error_map(shifted, prediction + 1, width, 0).ravel(), by_hand)


def test_figure():
    truth, prediction = next(label_maps([(40, 50)], 0.4))
    prediction[truth == 255] = 1
    image = np.full((*truth.shape, 3), 100, np.uint8)
    figure = error_figure(image, truth, prediction, CLASSES, PALETTE, 2, 'title')
    panels = [ax.get_images()[0].get_array() for ax in figure.axes[:4]]
    painted = np.array([*PALETTE, (255, 255, 255)])[np.where(truth == 255, 4, truth)]
    np.testing.assert_array_equal(panels[1], painted)
    errors = error_map(truth, prediction, 2)
    for kind in Pixel:
        colour, _ = LEGEND.get(kind, ((60, 60, 60), ''))  # the image in darker grey
        np.testing.assert_array_equal(panels[3][errors == kind], [colour] * (errors == kind).sum())
    np.testing.assert_array_equal(panels[2], np.array(PALETTE)[prediction])
    count = np.bincount(errors.ravel())[Pixel.RIGHT :]
    shares = [text.get_text() for text in figure.axes[3].get_legend().get_texts()]
    for text, number in zip(shares[:3], count, strict=True):
        assert text.startswith(f'{number / count.sum():.1%} ')
    found = scores(image_sums(truth, prediction, 4, widths=(2,)))
    for where in ('band2px', 'all'):
        line = f'mIoU {found[f"{where}/mIoU"]:.1f}%, {found[f"{where}/aAcc"]:.1f}% of pixels right'
        assert line in figure.get_supxlabel()
    render(figure)
    caption = figure._supxlabel.get_window_extent()  # below the legends
    assert all(ax.get_legend().get_window_extent().y0 >= caption.y1 for ax in figure.axes[2:4])
