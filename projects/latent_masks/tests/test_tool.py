from pathlib import Path

import cv2
import numpy as np
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmbixt.config import PROJECTS


def test_picture(within, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arch = dict(embed_dims=32, num_heads=2, depth=12)
    small = dict(
        backbone=dict(arch=dict(_delete_=True, **arch), num_latents=6),
        neck=dict(in_channels=32),
        decode_head=dict(in_channels=[32] * 4, num_queries=6, num_classes=3),
    )
    config = PROJECTS / 'latent_masks/configs/latentmask_bixt_ti_ade20k.py'
    Path('small.py').write_text(f'_base_ = {str(config)!r}\nmodel = {small}')
    init_default_scope('mmseg')
    model = MODELS.build(Config.fromfile('small.py').model)
    meta = dict(dataset_meta=dict(classes=('sky', 'road', 'car')))
    torch.save(dict(state_dict=model.state_dict(), meta=meta), 'x.pth')
    cv2.imwrite('dog.jpg', np.zeros((30, 40, 3), np.uint8))
    tool = PROJECTS / 'latent_masks/tools/visualize_masks.py'
    done = within(tool, 'small.py', 'x.pth', 'dog.jpg')
    assert done.stdout.splitlines()[-1] == 'work_dirs/latent_masks/dog.png'
    assert cv2.imread('work_dirs/latent_masks/dog.png').shape[1] > 800
