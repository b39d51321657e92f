"""Optimizers and schedules that are built from configs are those of the papers' authors."""

import subprocess

import numpy as np
import pytest
import torch
from helpers import CONFIGS
from mmcv.transforms import Compose
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DATASETS, MODELS, PARAM_SCHEDULERS, init_default_scope
from PIL import Image, ImageEnhance

from mmbixt.config import read_config

BIXT = ['bixt_ti_l64_p16_in1k', 'bixt_ed256ls_l64_p16s8_in1k', 'bixt_ti_cnv_lpi_l64_p16_in1k']
BIXT += ['bixt_ti_iter_sa6_d7_shared_120e_in1k', 'bixt_ti_seq_l64_p16_120e_in1k']


def load(name):
    cfg = read_config(name)
    init_default_scope(cfg.default_scope)
    return cfg


def decays(model, optimizer):
    """The weight decay of each parameter, by its name."""
    of = {id(p): g['weight_decay'] for g in optimizer.param_groups for p in g['params']}
    return {name: of[id(p)] for name, p in model.named_parameters()}


def rates(cfg, steps_of_epoch=2):
    """The learning rates of all steps, in short epochs if the training has epochs."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=cfg.optim_wrapper.optimizer.lr)
    about = dict(optimizer=optimizer, epoch_length=steps_of_epoch)
    schedulers = [PARAM_SCHEDULERS.build(x, default_args=about) for x in cfg.param_scheduler]
    found, settings = [], cfg.train_cfg
    for _ in range(settings.get('max_iters') or settings.max_epochs * steps_of_epoch):
        found.append(optimizer.param_groups[0]['lr'])
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    return found


@pytest.mark.parametrize('name', BIXT)
def test_bixt_has_weight_decay_and_trust_ratios_on_all_but_vectors(name):
    """Also on latents and on the projection of positions, as in the authors' optimizer."""
    cfg = load(name)
    cfg.model.backbone.depth = 2
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    model.init_weights()
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    about = dict(eps=1e-8, trust_clip=True, always_adapt=False, max_grad_norm=1.0)
    assert about.items() <= optimizer.defaults.items()
    found = decays(model, optimizer)
    assert found == {x: 0.05 if p.ndim > 1 else 0.0 for x, p in model.named_parameters()}
    projection = 'backbone.fourier_pos_encode.token_projection.weight'
    assert found['backbone.latents'] == found[projection] == 0.05
    assert not model.head.fc.weight.any()  # it starts from zero

    before = {x: p.detach().clone() for x, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimizer.step()
    for x, p in model.named_parameters():
        relative = (p - before[x]).norm() / before[x].norm()
        if p.ndim > 1 and before[x].any():
            assert relative <= 2.5e-3 * 1.0001, x  # without the trust ratio, 50 times for latents


@pytest.mark.parametrize(
    ('name', 'first'),
    [
        ('bixt_ti_l64_p16_in1k', 1e-6),
        ('bixt_ti_l64_p16_300e_in1k', 1e-6),
        ('bixt_ti_l64_p16_120e_in1k', 1e-6),
        ('bixt_ti_l64_p16_384_in1k', 2.5e-5),
    ],
)
def test_rate_of_bixt_falls_to_the_floor(name, first):
    cfg = load(name)
    found = rates(cfg)
    assert found[0] == pytest.approx(first)
    assert max(found) == pytest.approx(cfg.optim_wrapper.optimizer.lr)
    assert found[-1] == pytest.approx(1e-5, rel=0.02)
    assert min(found[len(found) // 2 :]) >= 1e-5


@pytest.mark.parametrize(
    ('name', 'warm_up', 'start'),
    [
        ('semfpn_xcit_t12_p16_ade20k', 1500, 1e-6),
        ('semfpn_biformer_s_ade20k', 1000, 0.1),
    ],
)
def test_rate_of_segmentors_decays_from_the_first_iteration(name, warm_up, start):
    """As in the authors' mmcv, whose warm-up multiplies the decayed rate."""
    cfg = load(name)
    found = torch.tensor(rates(cfg), dtype=torch.float64) / cfg.optim_wrapper.optimizer.lr
    step = torch.arange(len(found), dtype=torch.float64)
    done = step / len(found)
    cosine = cfg.param_scheduler[-1].type == 'CosineAnnealingLR'
    decayed = (1 + torch.cos(torch.pi * done)) / 2 if cosine else 1 - done
    expected = decayed * (start + (1 - start) * (step / warm_up).clamp(max=1))
    assert (found - expected).abs().max() < 1e-3  # mmengine ends a step earlier


def test_drop_path_of_bixt():
    """Of tiny models as in the paper, of width 256 as in the script, of width 384 in its range."""
    names = 'bixt_ti_l64_p16', 'bixt_ed256ls_l64_p16s8', 'bixt_small_l64_p16'
    rates = [load(f'{name}_in1k').model.backbone.drop_path_rate for name in names]
    assert rates == [0.05, 0.0, 0.1]


@pytest.mark.parametrize(
    ('name', 'decay'),
    [
        ('upernet_biformer_t_ade20k', 0.01),
        ('maskrcnn_biformer_t_1x_coco', 0.05),
        ('upernet_bisa_swin_t_ade20k', 0.01),
        ('semfpn_xcit_t12_p16_ade20k', 0.01),
        ('semfpn_bixt_ti_lpi_ade20k', 0.01),
        ('linear_bixt_ti_ade20k', 0.01),
    ],
)
def test_weight_decay_of_dense_models(name, decay):
    """By the names that the authors' configs spare: batch norms have it, layer norms do not."""
    cfg = load(name)
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    found = decays(model, build_optim_wrapper(model, cfg.optim_wrapper).optimizer)
    for key, value in found.items():
        module = model.get_submodule(key.rpartition('.')[0])
        spared = isinstance(module, torch.nn.LayerNorm)
        spared |= key.endswith(('relative_position_bias_table', 'lam_logit'))
        spared |= key.startswith(('backbone.latents', 'backbone.fourier_pos_encode.'))
        assert value == (0.0 if spared else decay), key


@pytest.mark.parametrize('name', ['xcit_s12_p16_384_dist_in1k', 'xcit_s12_p16_transfer'])
def test_other_sizes_of_xcit_have_all_their_layers(name):
    cfg = load(name)
    cfg.merge_from_dict({'model.backbone.arch': 'tiny24'})
    with torch.device('meta'):
        assert len(MODELS.build(cfg.model.backbone).blocks) == 24


def test_transfer_has_the_settings_of_deits_authors():
    cfg = load('xcit_s12_p16_transfer')
    assert max(rates(cfg)) == pytest.approx(0.01)
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    assert isinstance(optimizer, torch.optim.SGD)
    found = decays(model, optimizer)
    assert found['head.fc.weight'] == found['backbone.blocks.3.attn.temperature'] == 1e-4
    assert found['head.fc.bias'] == found['backbone.blocks.3.norm1.weight'] == 0
    assert not any(getattr(x, 'drop_prob', 0) for x in model.modules())  # no stochastic depth
    assert cfg.weights.checkpoint == 'xcit://small12-p16-dist'  # Table D.2
    steps = [step.type for step in cfg.train_dataloader.dataset.pipeline]
    assert 'RandAugment' in steps
    assert 'RandomErasing' not in steps


@pytest.mark.parametrize(
    ('policy', 'enhance'), [('ColorTransform', 'Color'), ('Contrast', 'Contrast')]
)
def test_augmentation_of_cifar_weighs_channels_as_pil(policy, enhance):
    """CIFAR's images are RGB, and mmpretrain's RandAugment is for BGR."""
    dataset = load('bisa_swin_t_cifar100').train_dataloader.dataset
    steps = [step.type for step in dataset.pipeline]
    first, last = steps.index('NumpyToPIL'), steps.index('RandomErasing')
    augment = dict(type=policy, magnitude=0.6, prob=1.0, random_negative_prob=0.0)
    dataset.pipeline[steps.index('RandAugment')] = augment
    image = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    image[..., 0] //= 4
    found = Compose(dataset.pipeline[first:last])(dict(img=image))['img']
    expected = np.asarray(getattr(ImageEnhance, enhance)(Image.fromarray(image)).enhance(1.6))
    assert np.abs(found.astype(float) - expected).mean() < 0.6


def test_classes_of_imagenet_v2_are_the_numbers_of_its_folders(tmp_path, monkeypatch):
    """By the file of the command in docs/datasets.md: by their names 10 comes before 2."""
    dataset = load('xcit_s12_p16_in1k_v2').test_dataloader.dataset
    images = tmp_path / dataset.data_root
    for i in (2, 10, 999):
        (images / f'{i}').mkdir(parents=True)
        (images / f'{i}/picture.jpeg').touch()
    page = (CONFIGS.parent / 'docs/datasets.md').read_text()
    (command,) = (line for line in page.splitlines() if 'labels.txt' in line and 'find' in line)
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    samples = DATASETS.build(dataset)
    found = [samples.get_data_info(i) for i in range(len(samples))]
    labels = {x['img_path'].split('/')[-2]: x['gt_label'] for x in found}
    assert labels == {'2': 2, '10': 10, '999': 999}
