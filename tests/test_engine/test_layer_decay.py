"""Layer-wise learning rates of whole models, built as a runner builds them."""

import pytest
import torch
from mmengine.optim import build_optim_wrapper
from torch import nn
from variants import VARIANTS
from variants import build as build_backbone

from mmbixt.backbones import XCiT
from mmbixt.engine.layer_decay import parameters_of

# number of layers and of stages of small backbones
LAYERS = {'bixt': (3, 3), 'xcit': (3, 3), 'biformer': (5, 3), 'bisa': (5, 3)}
XCIT = dict(embed_dims=32, num_heads=2, depth=4)


class Model(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.decode_head = nn.Conv2d(8, 8, 1)


def build(model, lr=0.1, **paramwise_cfg):
    cfg = dict(
        constructor='mmbixt.LayerDecayOptimWrapperConstructor',
        optimizer=dict(type='AdamW', lr=lr, weight_decay=0.05),
        paramwise_cfg=paramwise_cfg,
    )
    return build_optim_wrapper(model, cfg).optimizer


def settings(model, optimizer):
    """Parameter groups by the names of their parameters."""
    by_id = {id(p): group for group in optimizer.param_groups for p in group['params']}
    return {name: by_id[id(p)] for name, p in model.named_parameters() if id(p) in by_id}


@pytest.mark.parametrize('family', LAYERS)
@pytest.mark.parametrize('kind', ['layer_wise', 'stage_wise'])
def test_each_parameter_has_the_rate_of_its_layer(family, kind):
    num_layers, num_stages = LAYERS[family]
    model = Model(build_backbone(VARIANTS[family]))
    found = settings(model, build(model, decay_rate=0.5, decay_type=kind))
    assert found.keys() == dict(model.named_parameters()).keys()
    parts = model.backbone.layers() if kind == 'layer_wise' else model.backbone.freezable_stages()
    count = num_layers if kind == 'layer_wise' else num_stages
    assert len(parts) == count
    depths = {id(p): i for i, layer in enumerate(parts) for p in parameters_of(layer)}
    assert len(depths) == sum(1 for _ in model.backbone.parameters())
    for name, parameter in model.named_parameters():
        scale = 0.5 ** (count - depths.get(id(parameter), count))
        assert (scale == 1) == name.startswith('decode_head')
        assert found[name]['lr'] == pytest.approx(0.1 * scale)
        assert found[name]['weight_decay'] == (0 if parameter.ndim == 1 else 0.05)


@pytest.mark.parametrize('family', LAYERS)
def test_layers_are_in_the_order_of_the_network(family):
    """Each feature map has gradients in the first layers only, and the next one in more."""
    model = build_backbone(VARIANTS[family])
    used = []
    for output in model(torch.randn(2, 3, 64, 64)):
        model.zero_grad()
        output.square().sum().backward(retain_graph=True)
        layers = [any(p.grad is not None for p in parameters_of(x)) for x in model.layers()]
        used.append(sum(layers))
        assert layers == sorted(layers, reverse=True)
    assert used == sorted(set(used))
    assert used[-1] == len(model.layers())


def test_stock_options_and_frozen_parts():
    model = Model(XCiT(XCIT, frozen_stages=1))
    keys = {'decode_head': dict(lr_mult=10.0), 'temperature': dict(decay_mult=0.5)}
    options = dict(norm_decay_mult=1.0, custom_keys=keys)
    found = settings(model, build(model, decay_rate=0.9, **options))
    assert found.keys() == {name for name, p in model.named_parameters() if p.requires_grad}
    assert found['decode_head.weight']['lr'] == pytest.approx(1.0)
    assert found['backbone.blocks.3.norm1.weight']['weight_decay'] == 0.05
    assert found['backbone.blocks.3.attn.temperature']['weight_decay'] == 0.025
    assert found['backbone.blocks.3.attn.temperature']['lr'] == pytest.approx(0.1 * 0.9)
    # with and without weight decay, of three layers and of the head
    assert len(build(model, decay_rate=0.9).param_groups) == 2 * (3 + 1)


def test_bad_settings_are_explained():
    for cfg, message in (
        (dict(decay_rate=1.5), 'decay_rate is 1.5'),
        (dict(decay_rate=0.9, decay_type='block'), "decay_type='block' is not one of layer_wise"),
    ):
        with pytest.raises(ValueError, match=message):
            build(Model(XCiT(XCIT)), **cfg)
    with pytest.raises(ValueError, match='no backbone of mmbixt'):
        build(Model(nn.Linear(2, 2)), decay_rate=0.9)
