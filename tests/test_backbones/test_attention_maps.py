"""``attention_maps`` of backbones. tests/test_visualization compares those of each attention."""

import copy

import pytest
import torch
from helpers import assert_close, image
from variants import VARIANTS, build


@pytest.mark.parametrize('config', VARIANTS.values(), ids=VARIANTS)
def test_attention_maps_do_not_change_a_network_in_training(config):
    backbone = build(config).train()
    list(backbone.modules())[-1].eval()
    modes = [module.training for module in backbone.modules()]
    before = copy.deepcopy(backbone.state_dict())
    found = backbone.attention_maps(image(2, 48, 64))
    assert [*found] == [x.name for x in backbone.layer_list() if x.attention is not None]
    assert [module.training for module in backbone.modules()] == modes
    assert all(torch.equal(value, before[key]) for key, value in backbone.state_dict().items())
    assert not any(m._forward_pre_hooks for m in backbone.modules())


@pytest.mark.parametrize(
    ('name', 'layers', 'shapes'),
    [
        ('bixt', [1], {'blocks.1': [(2, 2, 64, 20)] * 2}),  # 4 x 5 tokens
        ('xcit', [-1], {'blocks.1': [(2, 2, 8, 20)] * 2 + [(2, 2, 8, 8)]}),
        (
            'biformer',  # 7 x 9 cells in 3 x 3 regions, of which each attends to 4
            [1, -1],
            {f'stages.1.{i}': [(2, 9, 1, 9, 4, 9)] for i in (0, 1)}
            | {'stages.2.0': [(2, 8, 20, 20)]},
        ),
        ('bisa', [0], {f'stages.0.blocks.{i}': [(2, 6, 1, 49, 49)] * 2 for i in (0, 1)}),
    ],
)
def test_some_layers(name, layers, shapes):
    found = build(VARIANTS[name]).attention_maps(image(2, 50, 70), layers)
    several = {k: maps if isinstance(maps, tuple) else (maps,) for k, maps in found.items()}
    assert {k: [tuple(m.shape) for m in maps] for k, maps in several.items()} == shapes


def test_all_regions_are_each_region():
    module = build(VARIANTS['biformer']).stages[1][0].attn
    x = torch.randn(2, 7, 9, 32)
    each = [module.attention_maps(x, region) for region in range(9)]
    assert_close(module.attention_maps(x), torch.stack(each, 1))
