"""``attention_maps`` of all backbones: the attention of their layers on images."""

import copy

import pytest
import torch
from helpers import assert_close, image
from variants import VARIANTS, build

from mmbixt import backbones
from mmbixt.layers import SelfAttention

# of networks that have attention
ATTENTIVE = {
    name: config
    for name, config in VARIANTS.items()
    if hasattr(getattr(backbones, config['type'].removeprefix('mmbixt.')), 'attention_maps')
}
# over what each map sums to one, if not over the last axis; None: queries and keys
SUMS = dict(
    BiXT=lambda maps: [(-2, -1), 2],
    BiXTAblation=lambda maps: [(-2, -1), 2],
    XCiT=lambda maps: [None, None, -1],
    BiFormer=lambda maps: [(-2, -1) if maps[0].dim() == 6 else -1],
    BiSASwin=lambda maps: [-1, -2],
)


@pytest.mark.parametrize('config', ATTENTIVE.values(), ids=ATTENTIVE)
@torch.no_grad()
def test_attention_maps_are_those_of_the_modules(config):
    backbone, x = build(config).eval(), image(2, 50, 70)
    modules = [m for m in list(backbone.modules())[1:] if hasattr(m, 'attention_maps')]
    calls = []
    for module in (m for m in modules if not isinstance(m, SelfAttention)):  # of BiXT's latents
        module.register_forward_pre_hook(
            lambda module, inputs: calls.append(module.attention_maps(*inputs))
        )
    feature_maps = backbone(x)
    expected = [*calls]  # the hooks are called again
    found = backbone.attention_maps(x)
    assert len(found) == len(expected)
    sums_of = SUMS.get(type(backbone).__name__, lambda maps: [-1] * len(maps))
    for maps, of_module in zip(found.values(), expected, strict=True):
        maps, of_module = (m if isinstance(m, tuple) else (m,) for m in (maps, of_module))
        for one, other, axes in zip(maps, of_module, sums_of(maps), strict=True):
            if one is None:
                assert backbone.stages[1].blocks[0].attn.w_msa.isa is None
                continue
            assert torch.equal(one.flatten(), other.flatten())
            if axes is not None:
                assert_close(sums := one.sum(axes), torch.ones_like(sums))
    for actual, before in zip(backbone(x), feature_maps, strict=True):
        assert torch.equal(actual, before)


@pytest.mark.parametrize('config', ATTENTIVE.values(), ids=ATTENTIVE)
def test_attention_maps_do_not_change_a_network_in_training(config):
    backbone = build(config).train()
    list(backbone.modules())[-1].eval()
    modes = [module.training for module in backbone.modules()]
    before = copy.deepcopy(backbone.state_dict())
    backbone.attention_maps(image(2, 48, 64))
    assert [module.training for module in backbone.modules()] == modes
    assert all(torch.equal(value, before[key]) for key, value in backbone.state_dict().items())
    assert not any(m._forward_pre_hooks for m in backbone.modules())


def test_some_layers_and_their_grid():
    x = image(2, 50, 70)
    bixt, xcit = (build(VARIANTS[name]).attention_maps(x, layers=[1]) for name in ('bixt', 'xcit'))
    assert [tuple(m.shape) for m in bixt[1]] == [(2, 2, 64, 4, 5)] * 2
    assert [tuple(m.shape) for m in xcit[1]] == [(2, 2, 8, 4, 5)] * 2 + [(2, 2, 8, 8)]
    biformer = build(VARIANTS['biformer'])
    maps = biformer.attention_maps(x, stages=[1, -1])
    shapes = {place: tuple(m.shape) for place, m in maps.items()}
    routed = (2, 9, 1, 9, 4, 9)  # 7 x 9 cells in 3 x 3 regions
    assert shapes == {(1, 0): routed, (1, 1): routed, (2, 0): (2, 8, 20, 20)}
    found = biformer.routed_regions(x, stages=(0, -2, 2))  # the last stage has none
    assert sorted(found) == [(0, 0), (1, 0), (1, 1)]
    routes, *regions_and_stride = found[1, 1]
    assert routes.shape == (2, 9, 4)
    assert regions_and_stride == [(3, 3, 3, 3), 8]
    bisa = build(VARIANTS['bisa']).attention_maps(x, stages=[0])
    assert list(bisa) == [(0, 0), (0, 1)]
    assert [tuple(m.shape) for m in bisa[0, 1]] == [(2, 6, 1, 49, 49)] * 2  # 13 x 18 cells


def test_all_regions_are_each_region():
    module = build(VARIANTS['biformer']).stages[1][0].attn
    x = torch.randn(2, 7, 9, 32)
    each = [module.attention_maps(x, region) for region in range(9)]
    assert_close(module.attention_maps(x), torch.stack(each, 1))
