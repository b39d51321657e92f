"""The tool that draws errors of a model near boundaries."""

from pathlib import Path

import cv2
import pytest
import visualize as tool

pytestmark = pytest.mark.usefixtures('in_project')


@pytest.fixture
def visualize(within):
    """Runs the tool in the project; returns its output and its error."""

    def visualize(*arguments):
        done = within('analysis/visualize.py', 'mine.py', 'mine.pth', *arguments, fails=None)
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


def test_wrong_arguments(visualize):
    for arguments, message in (
        (['--worst', 2, '--sums', 'x.npz'], 'There is no file x.npz'),
        (['--images', 'scene_7'], 'no image scene_7. It has 5 images: scene_0, scene_1'),
    ):
        assert message in visualize(*arguments)[1]
