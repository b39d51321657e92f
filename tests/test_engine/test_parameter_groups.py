"""Layer-wise learning rates of whole models, built as a runner builds them."""

import copy

import pytest
import torch
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, DefaultScope
from mmpretrain.models import ImageClassifier
from running import fresh_mmengine
from torch import nn
from variants import FAMILIES
from variants import build as build_backbone

from mmbixt.backbones import XCiT
from mmbixt.backbones.base import layer_groups
from mmbixt.config import read_config


class Model(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.decode_head = nn.Conv2d(8, 8, 1)


def parameters_of(layer):
    for part in layer:
        yield from part.parameters() if isinstance(part, nn.Module) else [part]


def build(model, constructor='mmbixt.FewGroupsConstructor', **paramwise_cfg):
    cfg = dict(
        constructor=constructor,
        optimizer=dict(type='AdamW', lr=0.1, weight_decay=0.05),
        paramwise_cfg=paramwise_cfg,
    )
    return build_optim_wrapper(model, cfg).optimizer


def settings(model, optimizer):
    """Parameter groups by the names of their parameters."""
    by_id = {id(p): group for group in optimizer.param_groups for p in group['params']}
    return {name: by_id[id(p)] for name, p in model.named_parameters() if id(p) in by_id}


@pytest.mark.parametrize('family', FAMILIES)
def test_each_parameter_has_the_rate_of_its_layer(family):
    model = Model(build_backbone(FAMILIES[family]))
    groups = settings(model, build(model, decay_rate=0.5))
    assert groups.keys() == dict(model.named_parameters()).keys()
    layers = layer_groups(model.backbone)
    count = len(layers)
    depths = {id(p): i for i, layer in enumerate(layers) for p in parameters_of(layer)}
    assert len(depths) == sum(1 for _ in model.backbone.parameters())
    for name, parameter in model.named_parameters():
        scale = 0.5 ** (count - depths.get(id(parameter), count))
        assert (scale == 1) == name.startswith('decode_head')
        assert groups[name]['lr'] == pytest.approx(0.1 * scale)
        assert groups[name]['weight_decay'] == (0 if parameter.ndim == 1 else 0.05)


@pytest.mark.parametrize('family', FAMILIES)
def test_mmpretrains_constructor_gives_classifiers_the_same_rates(family):
    head = dict(type='LinearClsHead', num_classes=2, in_channels=8)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        model = ImageClassifier(build_backbone(FAMILIES[family]), head=head)
    same = dict(norm_decay_mult=0.0, bias_decay_mult=0.0, flat_decay_mult=0.0)
    constructor = 'mmpretrain.LearningRateDecayOptimWrapperConstructor'
    groups = settings(model, build(model, constructor, layer_decay_rate=0.5, **same))
    expected = settings(model, build(model, decay_rate=0.5))
    assert groups.keys() == expected.keys()
    for name, group in expected.items():
        for key in ('lr', 'weight_decay'):
            assert groups[name].get(key) == pytest.approx(group.get(key, 0.05)), name


@pytest.mark.parametrize('family', FAMILIES)
def test_layers_are_in_the_order_of_the_network(family):
    """Each feature map has gradients in the first layers only, and the next one in more."""
    model = build_backbone(FAMILIES[family])
    used = []
    for output in model(torch.randn(2, 3, 64, 64)):
        model.zero_grad()
        output.square().sum().backward(retain_graph=True)
        layers = [any(p.grad is not None for p in parameters_of(x)) for x in layer_groups(model)]
        used.append(sum(layers))
        assert layers == sorted(layers, reverse=True)
    assert used == sorted(set(used))
    assert used[-1] == len(layer_groups(model))


def test_stock_options_and_frozen_parts():
    model = Model(XCiT(dict(embed_dims=32, num_heads=2, depth=4), frozen_stages=1))
    keys = {'decode_head': dict(lr_mult=10.0), 'temperature': dict(decay_mult=0.5)}
    options = dict(norm_decay_mult=1.0, custom_keys=keys)
    groups = settings(model, build(model, decay_rate=0.9, **options))
    assert groups.keys() == {name for name, p in model.named_parameters() if p.requires_grad}
    assert groups['decode_head.weight']['lr'] == pytest.approx(1.0)
    assert groups['backbone.blocks.3.norm1.weight']['weight_decay'] == 0.05
    assert groups['backbone.blocks.3.attn.temperature']['weight_decay'] == 0.025
    assert groups['backbone.blocks.3.attn.temperature']['lr'] == pytest.approx(0.1 * 0.9)
    # with and without weight decay, of three layers and of the head
    assert len(build(model, decay_rate=0.9).param_groups) == 2 * (3 + 1)


@pytest.mark.parametrize('name', ['semfpn_xcit_t12_p16_ade20k', 'bixt_ti_l64_p16_in1k'])
def test_few_groups_have_the_settings_of_many(name):
    """Of AdamW and LAMB, in the schedules of the configs."""
    config = read_config(name)
    with fresh_mmengine(), DefaultScope.overwrite_default_scope(config.default_scope):
        config.model.backbone.init_cfg = None
        model = revert_sync_batchnorm(MODELS.build(config.model))
        few = build_optim_wrapper(model, copy.deepcopy(config.optim_wrapper)).optimizer
        del config.optim_wrapper['constructor']
        many = build_optim_wrapper(model, config.optim_wrapper).optimizer
    found, expected = settings(model, few), settings(model, many)
    assert len(few.param_groups) == 2 < len(many.param_groups)
    assert found.keys() == expected.keys()
    for key, group in found.items():
        assert [(k, v) for k, v in group.items() if k != 'params' and expected[key][k] != v] == []
