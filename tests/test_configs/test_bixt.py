"""The BiXT configs at full size: what they say and what they build."""

from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / 'configs/bixt'
CONFIGS = sorted([*FOLDER.glob('linear_*.py'), *FOLDER.glob('semfpn_*.py')])  # the paper's
NAMES = [path.stem for path in CONFIGS]


def load(path):
    cfg = Config.fromfile(path)
    init_default_scope(cfg.default_scope)
    return cfg


def build(cfg):
    # SyncBN, right on several GPUs, does not run on a CPU
    text = cfg.pretty_text.replace("'SyncBN'", "'BN'")
    return MODELS.build(Config.fromstring(text, '.py').model)


def test_all_are_there():
    assert NAMES == [
        'linear_bixt_ti_ade20k',
        'linear_bixt_ti_s4_ade20k',
        'linear_bixt_ti_s8_ade20k',
        'semfpn_bixt_ti_ade20k',
        'semfpn_bixt_ti_lpi_ade20k',
    ]


@pytest.mark.parametrize('path', CONFIGS, ids=NAMES)
def test_recipe(path):
    cfg = load(path)
    assert cfg.train_cfg.max_iters == 80_000
    assert cfg.optim_wrapper.optimizer.type == 'AdamW'
    assert (cfg.optim_wrapper.optimizer.lr, cfg.optim_wrapper.optimizer.weight_decay) == (
        6e-5,
        0.01,
    )
    assert cfg.auto_scale_lr.base_batch_size == 32
    assert cfg.train_dataloader.batch_size * 8 == 32
    assert cfg.crop_size == (512, 512)
    assert cfg.tta_model.type == 'SegTTAModel'
    warm_up, decay = cfg.param_scheduler
    assert (warm_up.type, warm_up.end, decay.type, decay.end) == (
        'LinearLR',
        1500,
        'PolyLR',
        80_000,
    )


@pytest.mark.parametrize('path', CONFIGS, ids=NAMES)
def test_no_decay_on_norms_latents_encodings_and_on_nothing_else(path):
    cfg = load(path)
    model = build(cfg)
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    decay = {id(g['params'][0]): g['weight_decay'] for g in optimizer.param_groups}
    for name, parameter in model.named_parameters():
        module = model.get_submodule(name.rpartition('.')[0])
        exempt = (
            'Norm' in type(module).__name__
            or name == 'backbone.latents'
            or name.startswith('backbone.fourier_pos_encode.')
        )
        assert decay[id(parameter)] == (0.0 if exempt else 0.01), name


@pytest.mark.parametrize('path', CONFIGS, ids=NAMES)
def test_one_step_reaches_every_parameter(path):
    """As DistributedDataParallel asks for; on a crop that is not square and no multiple of 16."""
    model = build(load(path)).train()
    labels = torch.randint(0, 150, (2, 1, 80, 56))
    samples = [SegDataSample(gt_sem_seg=PixelData(data=truth)) for truth in labels]
    losses = model.loss(torch.randn(2, 3, 80, 56), samples)
    sum(losses[key] for key in losses if 'loss' in key).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_sizes():
    counts = {path.stem: sum(p.numel() for p in build(load(path)).parameters()) for path in CONFIGS}
    linear = 14_520_000 + 2 * 192 + 192 * 150 + 150
    assert counts['linear_bixt_ti_ade20k'] == counts['linear_bixt_ti_s8_ade20k'] == linear
    assert counts['semfpn_bixt_ti_ade20k'] < counts['semfpn_bixt_ti_lpi_ade20k']


@pytest.mark.parametrize(
    'mode', [dict(mode='whole'), dict(mode='slide', crop_size=(64, 64), stride=(40, 40))]
)
def test_whole_and_slide_inference(mode):
    cfg = load(ROOT / 'configs/bixt/linear_bixt_ti_ade20k.py')
    cfg.model.test_cfg = mode
    model = build(cfg).eval()
    with torch.no_grad():
        logits = model.inference(
            torch.randn(1, 3, 80, 112), [dict(img_shape=(80, 112), ori_shape=(80, 112))]
        )
    assert logits.shape == (1, 150, 80, 112)
