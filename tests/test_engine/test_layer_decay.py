"""Layer-wise learning rates of whole models, built as a runner builds them."""

import pytest
import torch
from mmengine.optim import build_optim_wrapper
from torch import nn
from variants import VARIANTS
from variants import build as build_backbone

from mmbixt.backbones import XCiT
from mmbixt.engine.layer_decay import parameters_of, table

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


def test_the_log_has_a_table_of_all_rates():
    model = Model(XCiT(XCIT, frozen_stages=1))
    groups = build(model, lr=1.0, decay_rate=0.5, custom_keys=dict(bias=dict(lr_mult=8.0)))
    lines = [line.split(maxsplit=1) for line in table(model, groups.param_groups).split('\n')[1:]]
    rows = {rate: tuple(rest.split(maxsplit=1)) for rate, rest in lines[1:]}
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    parts = 'backbone.patch_embed, backbone.pos_embeder, backbone.blocks.0'
    assert lines[0] == ['not', f'trained {frozen:>11,}  {parts}']
    assert rows['0.125'][1].startswith('backbone.blocks.1.gamma1, ')
    assert rows['1'][1].startswith('backbone.blocks.1.norm1.bias, ')  # 8 * 0.125
    assert rows['8'] == ('8', 'decode_head.bias')
    counts = [int(count.replace(',', '')) for count, _ in rows.values()]
    assert frozen + sum(counts) == sum(p.numel() for p in model.parameters())
    named = dict(model.backbone.blocks.named_parameters())
    trained = [named[name] for name in named if 'norm' in name or 'gamma' in name]
    few = table(model, [dict(params=trained, lr=1.0)]).split('\n')[-1]
    assert 'backbone.blocks.*.norm1 (3)' in few  # of four blocks, the first is frozen
    everything = [dict(params=[*model.parameters()], lr=1.0)]  # as without paramwise_cfg
    assert table(model, everything).split('\n')[1].split()[:3] == ['not', 'trained', f'{frozen:,}']
