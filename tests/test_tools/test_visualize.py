"""The tool that draws errors of a model near boundaries."""

from pathlib import Path

import cv2
import pytest

pytestmark = pytest.mark.usefixtures('in_project')


def test_pictures_are_written(within):
    images = '--images', 'scene_0', 'scene_3'
    said = within('analysis/visualize.py', 'mine.py', 'mine.pth', *images).stdout
    assert said.endswith('2 pictures of 5 images: work_dirs/mine/boundary_errors\n')
    names = sorted(path.name for path in Path('work_dirs/mine/boundary_errors').iterdir())
    assert names == ['scene_0.png', 'scene_3.png']
    picture = cv2.imread('work_dirs/mine/boundary_errors/scene_0.png')
    for colour in ((255, 0, 0), (0, 9, 0), (0, 0, 9)):  # of the truth
        assert (picture == colour).all(-1).sum() > 10_000
