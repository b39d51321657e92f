"""The XCiT configs at full size: what they say and what they build."""

import pytest
import torch
from helpers import CONFIGS
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

PATHS = sorted((CONFIGS / 'xcit').glob('*_ade20k.py'))
NAMES = [path.stem for path in PATHS]
SIZES = {'t12': 'tiny12', 's12': 'small12', 's24': 'small24', 'm24': 'medium24'}


def load(path):
    cfg = Config.fromfile(path)
    init_default_scope(cfg.default_scope)
    return cfg


def build(cfg):
    with torch.device('meta'):
        return MODELS.build(cfg.model)


def test_all_are_there():
    expected = {
        f'{decoder}_xcit_{size}_p{patch}_ade20k'
        for decoder in ('semfpn', 'upernet')
        for size in SIZES
        for patch in (16, 8)
    }
    assert set(NAMES) == expected


@pytest.mark.parametrize('path', PATHS, ids=NAMES)
def test_recipe_is_the_authors(path):
    cfg = load(path)
    decoder, _, size, patch, _ = path.stem.split('_')
    iterations = dict(semfpn=80_000, upernet=160_000)[decoder]
    assert cfg.model.backbone.arch == SIZES[size]
    assert cfg.model.backbone.patch_size == int(patch[1:])
    assert cfg.train_cfg.max_iters == iterations == cfg.param_scheduler[-1].end
    assert cfg.train_cfg.val_interval * 10 == iterations
    assert (cfg.optim_wrapper.optimizer.lr, cfg.optim_wrapper.optimizer.weight_decay) == (
        6e-5,
        0.01,
    )
    assert cfg.train_dataloader.batch_size * 8 == cfg.auto_scale_lr.base_batch_size == 16
    backbone = build(cfg).backbone
    rates = {'tiny12': 0.0, 'small12': 0.05, 'small24': 0.1, 'medium24': 0.15}
    rate = 0.2 if (decoder, size) == ('semfpn', 'm24') else rates[SIZES[size]]
    assert backbone.blocks[0].drop_path.drop_prob == rate


@pytest.mark.parametrize('path', PATHS, ids=NAMES)
def test_parts_fit_each_other(path):
    model = build(load(path)).eval()
    with torch.no_grad():
        logits = model(torch.empty(1, 3, 64, 96, device='meta'), mode='tensor')
    assert logits.shape == (1, 150, 16, 24)
