"""Configs train and evaluate, at full size but for the images, on the generated scenes.

A few by default, all of them with the variable ZOO=all (`make test-zoo`).
"""

import math
import os

import pytest
import torch
from helpers import CONFIGS
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from running import fresh_mmengine, write_few_scenes

from mmbixt.sample.sample_config import use_sample_data

PATHS = {path.stem: path for path in sorted(CONFIGS.glob('*/*.py')) if path.parent.name != '_base_'}
# each family, decoder and kind of detector; the Semantic FPN is in test_tools/test_train_and_test
FEW = [
    'linear_bixt_ti_ade20k',
    'maskrcnn_xcit_t12_p16_3x_coco',
    'retinanet_biformer_t_1x_coco',
    'upernet_bisa_swin_t_ade20k',
]
RUN = list(PATHS) if os.environ.get('ZOO') == 'all' else FEW


@pytest.fixture(scope='module')
def scenes(tmp_path_factory):
    return write_few_scenes(tmp_path_factory.mktemp('data') / 'scenes')


def shorten(cfg, folder):
    """Two steps and a few images to evaluate; no checkpoint, which takes a gigabyte here."""
    cfg.train_cfg.update(max_iters=2, val_interval=2)
    cfg.train_dataloader.batch_size = 2
    for split in ('train', 'val', 'test'):
        cfg[f'{split}_dataloader'].update(num_workers=0, persistent_workers=False)
    cfg.val_dataloader.dataset.indices = 2
    cfg.default_hooks.checkpoint = None
    if cfg.default_scope == 'mmdet':
        cfg.train_dataloader.batch_size = 1
        # after two steps nothing is certain
        test_cfg = cfg.model.test_cfg
        test_cfg.get('rcnn', test_cfg).score_thr = 0.0
    if cfg.default_scope == 'mmpretrain':  # its RepeatAugSampler takes multiples of 256 images
        cfg.train_dataloader.sampler = dict(type='InfiniteSampler')
    cfg.work_dir = str(folder)


@pytest.mark.parametrize('name', RUN)
def test_trains_and_evaluates(name, scenes, tmp_path):
    cfg = Config.fromfile(PATHS[name])
    use_sample_data(cfg, str(scenes))
    shorten(cfg, tmp_path)
    with fresh_mmengine():
        runner = Runner.from_cfg(cfg)
        runner.train()
    metrics = {
        key: value.current()
        for key, value in runner.message_hub.log_scalars.items()
        if key.startswith('val/') and 'time' not in key
    }
    loss = runner.message_hub.get_scalar('train/loss').current()
    assert math.isfinite(loss)
    scores = dict(mmseg='mIoU', mmdet='coco/bbox_mAP', mmpretrain='accuracy/top1')
    assert f'val/{scores[cfg.default_scope]}' in metrics
    if name.startswith('maskrcnn'):
        assert 'val/coco/segm_mAP' in metrics


def test_slide_inference():
    cfg = Config.fromfile(PATHS['linear_bixt_ti_ade20k'])
    init_default_scope(cfg.default_scope)
    cfg.model.test_cfg = dict(mode='slide', crop_size=(64, 64), stride=(40, 40))
    model = MODELS.build(cfg.model).eval()
    image = torch.randn(1, 3, 80, 112)
    with torch.no_grad():
        logits = model.inference(image, [dict(img_shape=(80, 112), ori_shape=(80, 112))])
    assert logits.shape == (1, 150, 80, 112)
