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


def test_all_regions_are_each_region():
    module = build(VARIANTS['biformer']).stages[1][0].attn
    x = torch.randn(2, 7, 9, 32)
    each = [module.attention_maps(x, region) for region in range(9)]
    assert_close(module.attention_maps(x), torch.stack(each, 1))
