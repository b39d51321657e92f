"""Pictures of errors near boundaries."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch

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


BANDS = """
_base_ = 'mine.py'
normalise = dict(mean=[2000.0] * 5, std=[1000.0] * 5, bgr_to_rgb=False)
model = dict(backbone=dict(in_channels=5), data_preprocessor=normalise)
load = dict(type='LoadImageFromFile', color_type='unchanged', imdecode_backend='tifffile')
pipeline = [load, *_base_.pipeline[1:]]
dataset = dict(data_prefix=dict(img_path='bands'), img_suffix='.npy', pipeline=pipeline)
val_dataloader = dict(dataset=dataset)
test_dataloader = val_dataloader
"""


def test_five_bands_of_12_bits(within, project, tmp_path, monkeypatch):
    """Red, green, blue and two others, in files of a package that is not installed."""
    monkeypatch.setattr('mmcv.image.io.tifffile', SimpleNamespace(imread=np.load))
    shutil.copytree(project, tmp_path, dirs_exist_ok=True)
    (tmp_path / 'data/bands').mkdir()
    bands = np.zeros((48, 80, 5), np.uint16)
    bands[:, 1:, 0] = 4095
    for i in range(5):
        np.save(tmp_path / f'data/bands/scene_{i}.npy', bands)
    (tmp_path / 'five.py').write_text(BANDS)
    state = torch.load('mine.pth')['state_dict']
    state = {k: x[:, [0] * 5] if x.dim() == 4 and x.shape[1] == 3 else x for k, x in state.items()}
    torch.save(dict(state_dict=state), tmp_path / 'five.pth')
    monkeypatch.chdir(tmp_path)
    within('analysis/visualize.py', 'five.py', 'five.pth', '--images', 'scene_0')
    red = cv2.imread('work_dirs/five/boundary_errors/scene_0.png') == (0, 0, 255)
    assert red.all(-1).sum() > 100_000
    within('predict.py', 'five.py', 'five.pth', 'data/bands/*', '--out', 'out', '--overlay')
    assert cv2.imread('out/scene_0_overlay.jpg')[:, 8:, 2].min() > 110
