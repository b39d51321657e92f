"""Pictures of errors near boundaries, by a tool and by a hook of a test."""

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


def test_hook_draws_every_second_image_of_a_test(within, tmp_path):
    hook = "dict(type='mmbixt.BoundaryVisHook', interval=2, max_images=2)"
    config = tmp_path / 'hook.py'
    config.write_text(f"_base_ = '{Path.cwd()}/mine.py'\ncustom_hooks = [{hook}]")
    within('test.py', config, 'mine.pth', '--work-dir', tmp_path)
    names = sorted(path.name for path in tmp_path.rglob('vis_image/*'))
    assert names == [f'test_boundary_scene_{i}_0.png' for i in (0, 2)]
