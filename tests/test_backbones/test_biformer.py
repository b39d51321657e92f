import copy

import pytest
import torch
from helpers import golden, image, official_state

from mmbixt.backbones import BiFormer
from mmbixt.layers import FullAttention
from mmbixt.ops import use_ops

GOLDENS = {  # arch, layout, regions, side, whether there are norms of the outputs
    'biformer_tiny__dense_nwin7__224x224': ('tiny', 'biformer_tiny__dense', 7, 224, True),
    'biformer_tiny__dense_nwin8__128x128': ('tiny', 'biformer_tiny__dense', 8, 128, True),
    'biformer_stl__nwin8__128x128': ('stl', 'biformer_stl', 8, 128, False),
}


@torch.no_grad()
@pytest.mark.parametrize('name', GOLDENS)
def test_golden(name):
    arch, layout, num_regions, side, has_norms = GOLDENS[name]
    state, reference, raw = official_state(layout), golden(name), []
    is_padded = any(side // stride % num_regions for stride in (4, 8, 16))
    for padding in ('legacy',) if is_padded else ('legacy', 'masked'):
        backbone = BiFormer(arch, num_regions, padding=padding).eval()
        backbone.load_state_dict(state)
        for stage in backbone.stages:
            stage.register_forward_hook(lambda *args: raw.append(args[2].permute(0, 3, 1, 2)))
        for path in ('auto', 'reference'):
            raw.clear()
            with use_ops(path):
                maps = backbone(image(1, side, side))
            for i in range(4):
                assert reference.check(f'raw{i}', raw[i].numpy()) < 2e-5
                if has_norms:
                    assert reference.check(f'out{i}', maps[i].numpy()) < 2e-5


@pytest.mark.parametrize(
    ('arch', 'lepe_of'), [('tiny', 'input'), ('stl', 'input'), ('stl-nchw', 'values')]
)
def test_attention_of_the_stages(arch, lepe_of):
    with torch.device('meta'):
        *routed, full = (stage[0].attn for stage in BiFormer(arch).stages)
        without = BiFormer(arch, topks=(1, 4, 16, -1)).stages[3][0].attn
    width = routed[0].qkv.qkv.in_features
    assert [attention.num_heads for attention in routed] == [width * 2**i // 32 for i in range(3)]
    assert isinstance(full, FullAttention)
    assert (full.num_heads, full.lepe_of) == (8, lepe_of)
    assert (without.lepe is None) == (arch != 'stl-nchw')


SMALL = dict(embed_dims=(32, 32, 64, 64), depths=(2, 1, 3, 1), topks=(1, 2, 3, -2))


def test_routes_for_pictures_do_not_change_the_network():
    backbone = BiFormer(SMALL, 4)
    x = image(2, 72, 64)
    before, statistics = backbone.eval()(x), copy.deepcopy(dict(backbone.named_buffers()))
    found = backbone.train().routed_regions(x, stages=(0, -2, 3))
    assert backbone.training
    assert all(torch.equal(value, statistics[key]) for key, value in backbone.named_buffers())
    assert sorted(found) == [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]
    routes, regions, stride = found[2, 2]
    assert routes.shape == (2, 16, 3)
    assert (regions, stride) == ((4, 4, 2, 1), 16)
    assert routes.min() >= 0
    assert routes.max() < 16
    for actual, expected in zip(backbone.eval()(x), before, strict=True):
        assert torch.equal(actual, expected)
    assert not backbone.stages[0][0].attn._forward_pre_hooks
