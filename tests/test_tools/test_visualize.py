"""The tool that draws errors of a model near boundaries."""

import re
from pathlib import Path

import cv2
import numpy as np
import pytest
import visualize as tool

from mmbixt.evaluation import image_sums
from mmbixt.evaluation.sums import ImageSums, write_sums

pytestmark = pytest.mark.usefixtures('in_project')


@pytest.fixture
def visualize(within):
    """Runs the tool in the project; returns its output and its error."""

    def visualize(*arguments, config='mine.py', checkpoint='mine.pth'):
        done = within('analysis/visualize.py', config, checkpoint, *arguments, fails=None)
        assert 'Traceback' not in done.stderr
        return done.stdout, done.stderr if done.returncode else ''

    return visualize


def pictures(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_pictures_are_written(visualize):
    said, error = visualize('--images', 'scene_0', 'scene_3')
    assert error == ''
    assert said.endswith('2 pictures of 5 images: work_dirs/mine/boundary_errors\n')
    assert pictures('work_dirs/mine/boundary_errors') == ['scene_0.png', 'scene_3.png']
    picture = cv2.imread('work_dirs/mine/boundary_errors/scene_0.png')
    for colour in ((255, 0, 0), (0, 9, 0), (0, 0, 9)):  # of the truth
        assert (picture == colour).all(-1).sum() > 10_000


def test_images_by_number_and_by_name():
    for wanted, found in (('2', [0, 2]), ('9', [0, 1, 2, 3, 4]), ('b/scene_4.jpg', [4])):
        assert tool.choose([f'scene_{i}' for i in range(5)], [wanted]) == found


def graded():
    """Counts of images, each worse than the one before; the third has no boundary."""
    truth = np.zeros((10, 20), int)
    truth[:, 10:] = 1
    for i in range(5):
        prediction = truth.copy()
        prediction[: 2 * i] = 2
        yield image_sums(truth * (i != 2), prediction, 3, widths=(3,))


def test_worst_images(visualize, tmp_path):
    names, classes = [f'scene_{i}.jpg' for i in range(5)], ['sky', 'tree', 'car']
    counted = ImageSums.stack(names, classes, list(graded()))
    write_sums(tmp_path / 'run/1/boundary.npz', names, classes, counted.counts)
    options = ['--sums', tmp_path / 'run', '--out-dir', tmp_path / 'out']
    _, error = visualize('--worst', 2, *options)
    assert error == ''
    assert pictures(tmp_path / 'out') == ['scene_3.png', 'scene_4.png']
    _, error = visualize('--worst', 2, '--width', 5, *options)
    assert 'band5px was not counted. Counted bands: band3px.' in error


def test_wrong_arguments(visualize):
    for arguments, message in (
        (['--worst', 2], 'CONFIG CHECKPOINT --boundary --work-dir work_dirs/mine, or'),
        (['--worst', 2, '--sums', 'x.npz'], 'There is no file x.npz'),
        (['--images', 'scene_7'], 'no image scene_7. It has 5 images: scene_0, scene_1'),
    ):
        said, error = visualize(*arguments)
        assert message in error
        assert said == ''
    labels = "    dict(type='LoadAnnotations'),\n"
    Path('unlabelled.py').write_text(Path('mine.py').read_text().replace(labels, ''))
    _, error = visualize('--images', 1, config='unlabelled.py')
    assert re.search(r'^error: \S+ has no gt_sem_seg', error, re.MULTILINE)
