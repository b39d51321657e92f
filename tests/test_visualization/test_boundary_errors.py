"""Kinds of errors against their definition, pixel by pixel, and the picture of them."""

import re
from pathlib import Path

import cv2
import numpy as np
import pytest

from mmbixt.evaluation import image_sums, scores
from mmbixt.visualization.boundary_errors import (
    COLOURS,
    PANEL,
    WHITE,
    Pixel,
    error_figure,
    error_map,
    render,
)

DOCS = Path(__file__).parents[2] / 'docs/boundary.md'
CLASSES = ['sky', 'tree', 'car', 'road']
PALETTE = [(0, 0, 255), (0, 255, 0), (255, 0, 0), (9, 9, 9)]


def kind_by_hand(truth, prediction, width, y, x):
    """What a pixel is, from all that is true around it."""
    if truth[y, x] == 255:
        return Pixel.IGNORED
    around = truth[max(0, y - width) : y + width + 1, max(0, x - width) : x + width + 1]
    near = {*around.ravel().tolist()} - {255}
    if len(near) == 1:
        return Pixel.OUTSIDE
    if truth[y, x] == prediction[y, x]:
        return Pixel.RIGHT
    return Pixel.MISSED if prediction[y, x] in near else Pixel.WRONG


def scene(height, width):
    """Regions of labels 0 to 3, some of it ignored, and a prediction that is often wrong."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 4, (height // 6 + 1, width // 6 + 1)).repeat(6, 0).repeat(6, 1)
    truth = truth[:height, :width]
    prediction = np.where(rng.random(truth.shape) < 0.4, rng.integers(0, 4, truth.shape), truth)
    return np.where(rng.random(truth.shape) < 0.05, 255, truth).astype(np.uint8), prediction


@pytest.mark.parametrize('shape', [(20, 31), (1, 40)])
@pytest.mark.parametrize('width', [1, 5, 0.05])
def test_kinds_are_those_of_the_definition(shape, width):
    pixels = width if isinstance(width, int) else max(1, round(width * np.hypot(*shape)))
    truth, prediction = scene(*shape)
    found = error_map(truth, prediction, width)
    assert found.dtype == np.uint8
    by_hand = [
        [kind_by_hand(truth, prediction, pixels, y, x) for x in range(shape[1])]
        for y in range(shape[0])
    ]
    np.testing.assert_array_equal(found, by_hand)
    shifted = np.where(truth == 255, 0, truth + 1)
    found = error_map(shifted, prediction + 1, width, ignore_index=0)
    np.testing.assert_array_equal(found, by_hand)


def test_share_of_right_pixels_is_the_accuracy_in_the_band():
    truth, prediction = scene(40, 50)
    errors = error_map(truth, prediction, 2)
    assert set(np.unique(errors)) == {*Pixel}
    count = np.bincount(errors.ravel())
    accuracy = scores(image_sums(truth, prediction, 4, widths=(2,)))['band2px/aAcc']
    assert 100 * count[Pixel.RIGHT] / count[Pixel.RIGHT :].sum() == pytest.approx(accuracy)


def test_what_is_ignored_is_no_class_and_makes_no_boundary():
    found = error_map(np.array([[0, 1, 255]]), np.array([[0, 255, 255]]), 1)
    assert found.tolist() == [[Pixel.RIGHT, Pixel.WRONG, Pixel.IGNORED]]
    ignored = np.full((5, 6), 255, np.uint8)
    assert (error_map(ignored, ignored, 2) == Pixel.IGNORED).all()
    assert (error_map(np.ones((5, 6), int), np.zeros((5, 6), int), 2) == Pixel.OUTSIDE).all()


def test_bad_arguments_are_refused():
    truth, prediction = scene(20, 31)
    with pytest.raises(ValueError, match=r'one size, got \(20, 31\) and \(20, 30\)'):
        error_map(truth, prediction[:, 1:], 3)
    with pytest.raises(ValueError, match=r'must be \(20, 31, 3\).*got \(20, 30, 3\)'):
        error_figure(blank(truth)[:, 1:], truth, prediction, CLASSES, PALETTE, 3, 'title')


def blank(labels):
    return np.full((*labels.shape, 3), 100, np.uint8)


def texts(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_figure_shows_and_says_all():
    truth, prediction = scene(40, 50)
    truth[truth == 2] = 0
    prediction[prediction == 2] = 0
    figure = error_figure(blank(truth), truth, prediction, CLASSES, PALETTE, 2, 'my title')
    panels = [ax.get_images()[0].get_array() for ax in figure.axes[:4]]
    assert figure.get_suptitle() == 'my title'
    assert [ax.get_title() for ax in figure.axes[:4]] == [
        *('image', 'truth', 'prediction'),
        'errors within 2 px of true boundaries',
    ]
    for labels, panel in zip((truth, prediction), panels[1:3], strict=True):
        expected = np.array([*PALETTE, WHITE])[np.where(labels == 255, 4, labels)]
        np.testing.assert_array_equal(panel, expected)
    errors = error_map(truth, prediction, 2)
    for kind in Pixel:
        colour = COLOURS.get(kind, (60, 60, 60))  # outside, a grey that is darker than the image
        np.testing.assert_array_equal(panels[3][errors == kind], [colour] * (errors == kind).sum())
    assert texts(figure.axes[2]) == ['sky', 'tree', 'road', 'no true label']
    count = np.bincount(errors.ravel())
    shares = count[Pixel.RIGHT :] / count[Pixel.RIGHT :].sum()
    for text, share, word in zip(
        texts(figure.axes[3]), shares, ('right', 'missed or moved', 'wrong class'), strict=False
    ):
        assert text.startswith(f'{share:.1%} ')
        assert word in text
    found = scores(image_sums(truth, prediction, 4, widths=(2,)))
    caption = figure.get_supxlabel()
    for where in ('band2px', 'all'):
        line = f'mIoU {found[f"{where}/mIoU"]:.1f}%, {found[f"{where}/aAcc"]:.1f}% of pixels right'
        assert line in caption


def test_figure_of_an_image_without_boundaries():
    truth, prediction = np.zeros((10, 12), int), np.ones((10, 12), int)
    figure = error_figure(blank(truth), truth, prediction, CLASSES, PALETTE, 2, 'title')
    assert figure.get_supxlabel() == 'The truth of this image has no boundary.'
    assert texts(figure.axes[2]) == ['sky', 'tree']
    assert texts(figure.axes[3]) == []


@pytest.mark.parametrize(('shape', 'count'), [((60, 80), 4), ((90, 45), 40), ((40, 120), 40)])
def test_nothing_is_cut_off_small_or_overlaps(shape, count):
    """Of legends, panels and the caption, also with many classes of long names."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, count, (10, 10)).repeat(12, 0).repeat(12, 1)[: shape[0], : shape[1]]
    truth[:5] = 255
    names = [f'a class with a name {i}' for i in range(count)]
    figure = error_figure(blank(truth), truth, truth[::-1] % count, names, None, 0.02, 'title')
    assert re.search(r'band of \d px .*, 2% of the diagonal', figure.get_supxlabel())
    pixels = render(figure)
    assert (pixels == WHITE).all(-1).any()
    height, width = pixels.shape[:2]
    boxes = [ax.get_window_extent() for ax in figure.axes[:4]]
    assert all(max(box.width, box.height) > 0.9 * PANEL * figure.dpi for box in boxes)
    boxes += [ax.get_legend().get_window_extent() for ax in figure.axes[2:]]
    boxes += [text.get_window_extent() for text in figure.texts]
    for i, box in enumerate(boxes):
        assert 0 <= box.x0 <= box.x1 <= width
        assert 0 <= box.y0 <= box.y1 <= height
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_folders_as_in_the_docs(tmp_path, monkeypatch):
    pytest.importorskip('mmseg')
    monkeypatch.chdir(tmp_path)
    truth, prediction = scene(30, 40)
    files = dict(images=blank(truth), truths=truth, predictions=prediction)
    for folder, pixels in files.items():
        (tmp_path / folder).mkdir()
        cv2.imwrite(f'{folder}/x.png', pixels)
    snippet = re.search(r'```python\n([^`]*error_figure.*?)```', DOCS.read_text(), re.DOTALL)[1]
    exec(snippet, {})
    assert cv2.imread('x_errors.png').shape[0] > 500
