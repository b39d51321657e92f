"""DINO's files of XCiT: weights of a backbone, or a whole training, whose teacher is used."""

import argparse

import pytest
import torch
from helpers import image, official_state
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import load_checkpoint
from mmpretrain.structures import DataSample
from paper_table import read_rows
from running import parse_options
from test_checkpoints.layouts import meta_state

from mmbixt.backbones import XCiT
from mmbixt.backbones.base import freezable_stages
from mmbixt.checkpoints.sources import SOURCES
from mmbixt.checkpoints.state_dict import unwrap
from mmbixt.config import read_config

NAME = 'xcit_s12_p16_dino_linear_in1k'
OPTIONS = [row.result.get('Options', '') for row in read_rows([NAME]) if row.has_run]
NANO = dict(arch='nano12')


def config(options):
    cfg = read_config(NAME)
    cfg.merge_from_dict(options)
    init_default_scope('mmpretrain')
    return cfg


def nano():
    sizes = dict(in_channels=128)
    neck = dict(num_heads=4, tokens_norm=False, **sizes)
    return config(dict(model=dict(backbone=NANO, neck=neck, head=dict(num_classes=5, **sizes))))


def training(weights):
    """What DINO's training stores: the student and the teacher are wrapped, with projections."""
    teacher = {f'module.backbone.{key}': value for key, value in weights.items()}
    teacher['module.head.mlp.0.weight'] = torch.zeros(2, 2)
    student = {key: torch.zeros_like(value) for key, value in teacher.items()}
    args = argparse.Namespace(arch='xcit_nano_12_p16', lr=0.00025)
    others = dict(optimizer=dict(state={}, param_groups=[]), epoch=300, args=args)
    return dict(student=student, teacher=teacher, **others, dino_loss=dict(center=torch.zeros(2)))


def without_head(state):
    return {key: value for key, value in state.items() if not key.startswith('head.')}


@pytest.mark.parametrize('options', OPTIONS)
def test_all_weights_of_the_published_files_are_used(options):
    """By the names and shapes of the networks: the four files have no classifier."""
    cfg = config(parse_options(options) if options else {})
    backbone = cfg.model.backbone
    expected = f"mmbixt.XCiT: arch='{backbone.arch}', patch_size={backbone.patch_size}"
    assert SOURCES[cfg.load_from].model_text == expected
    url = SOURCES[cfg.load_from].url.rpartition('/')[2]
    weights = without_head(meta_state(url.replace('_cp', '_p').replace('_dino.pth', '')))
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    assert len(freezable_stages(model.backbone)) == backbone.frozen_stages + 1
    for file in (weights, dict(model=weights), training(weights)):
        missing, unexpected = model.load_state_dict(unwrap(file), strict=False)
        assert missing == ['head.fc.weight', 'head.fc.bias']
        assert not unexpected


def test_the_last_row_is_tested_without_a_margin():
    """By the caption of Table 3, and the others with the margin of a crop of 0.875."""
    for name, sizes in (('xcit_m24_p8_384_dino_linear_in1k', [384, 384]), (NAME, [256, 224])):
        resize, crop = read_config(name).test_dataloader.dataset.pipeline[1:3]
        assert [resize.scale, crop.crop_size] == sizes


@pytest.mark.parametrize('kind', ['backbone', 'training'])
def test_the_teacher_is_loaded_and_only_the_head_is_trained(kind, tmp_path):
    state = without_head(official_state('xcit_nano_12_p16'))
    file = str(tmp_path / 'dino.pth')
    torch.save(state if kind == 'backbone' else training(state), file)
    alone = XCiT('nano12', init_cfg=dict(type='Pretrained', checkpoint=file))
    alone.init_weights()
    cfg = nano()
    model = MODELS.build(cfg.model | dict(data_preprocessor=cfg.data_preprocessor)).train()
    load_checkpoint(model, file)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for key, value in state.items():
        part = 'backbone' if key in alone.state_dict() else 'neck'
        assert torch.equal(before[f'{part}.{key}'], value)
        assert part == 'neck' or torch.equal(alone.state_dict()[key], value)
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    samples = [DataSample().set_gt_label(label) for label in (0, 3)]
    for _ in range(2):
        data = dict(inputs=list(image(2, 32, 32)), data_samples=samples)
        model.train_step(data, wrapper)
    changed = [
        key for key, value in model.state_dict().items() if not torch.equal(value, before[key])
    ]
    assert changed == ['head.fc.weight', 'head.fc.bias']
