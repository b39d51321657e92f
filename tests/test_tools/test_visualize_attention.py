from pathlib import Path

import cv2
import numpy as np
import torch
from helpers import CONFIGS

from mmbixt.backbones import BiFormer
from mmbixt.config import read_config
from mmbixt.visualization.attention.loading import prepare_image

TOOL = 'analysis/visualize_attention.py'
CONFIG = CONFIGS / 'biformer/semfpn_biformer_t_ade20k.py'


def test_pictures_of_a_point(within, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arch = dict(embed_dims=(32, 32, 32, 32), depths=(2, 1, 2, 1))
    small = dict(backbone=dict(arch=dict(_delete_=True, **arch)))
    Path('small.py').write_text(f'_base_ = {str(CONFIG)!r}\nmodel = {small}')
    state = BiFormer(arch).state_dict()
    torch.save({f'backbone.{key}': value for key, value in state.items()}, 'x.pth')
    cv2.imwrite('dog.jpg', np.zeros((30, 40, 3), np.uint8))
    arguments = TOOL, 'small.py', 'x.pth', 'dog.jpg', '--point'
    done = within(*arguments, 39, 29, '--layers', '0.1', '2')
    files = [f'work_dirs/attention/dog/layer_{i}.png' for i in ('0.1', '2.0', '2.1')]
    assert done.stdout.splitlines()[-3:] == files
    assert 'dog.jpg: 40 x 30 pixels, loaded as' in done.stdout
    assert all(cv2.imread(file).shape[1] > 800 for file in files)


def test_image_for_a_config_of_cifar(tmp_path):
    """Its pipeline loads no file."""
    file = str(tmp_path / 'red.png')
    cv2.imwrite(file, np.full((30, 40, 3), (0, 0, 255), np.uint8))
    inputs, image, size = prepare_image(read_config('bisa_swin_t_cifar100'), file)
    assert (image.shape, size) == ((224, 224, 3), (30, 40))
    assert image[0, 0].tolist() == [255, 0, 0]
    assert (inputs[0, :, 0, 0] > 0).tolist() == [True, False, False]
