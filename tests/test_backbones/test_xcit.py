from itertools import product
from math import prod

import pytest
import torch
from helpers import golden, image, official_parameters, official_shapes, official_state

from mmbixt.backbones import XCiT
from mmbixt.necks import FeaturePyramidAdapter
from mmbixt.ops import use_ops

GOLDENS = {  # authors' model: options, sizes
    'tiny_12_p16': (dict(arch='tiny12', patch_size=16), [(64, 64), (72, 104)]),
    'tiny_12_p8': (dict(arch='tiny12', patch_size=8), [(64, 64)]),
}


@torch.no_grad()
@pytest.mark.parametrize('name', GOLDENS)
def test_golden_before_and_after_the_pyramid(name):
    options, sizes = GOLDENS[name]
    state = official_state(f'xcit_{name}__dense')
    backbone = XCiT(**options).eval()
    backbone.load_state_dict(state)
    pyramid = FeaturePyramidAdapter(192, options['patch_size']).eval()
    own = [key for key in pyramid.state_dict() if not key.endswith('num_batches_tracked')]
    pyramid.load_state_dict({key: state[key] for key in own}, strict=False)
    for path, (height, width) in product(('auto', 'reference'), sizes):
        with use_ops(path):
            maps = backbone(image(1, height, width))
            levels = pyramid(maps)
        reference = golden(f'xcit_{name}__dense__{height}x{width}')
        for i in range(4):
            assert reference.check(f'pre{i}', maps[i].numpy()) < 2e-5
            assert reference.check(f'post{i}', levels[i].numpy()) < 2e-5


def test_layer_norms_have_the_authors_eps():
    """Too small an effect for a golden."""
    norms = [
        m for m in XCiT('nano12', out_indices=(0,)).modules() if isinstance(m, torch.nn.LayerNorm)
    ]
    assert {norm.eps for norm in norms} == {1e-6}


PUBLISHED = {  # layer scale, stochastic depth: paper and released code
    ('nano12', 16): (1.0, 0.0),
    ('tiny12', 8): (1.0, 0.0),
    ('tiny24', 16): (1e-5, 0.05),
    ('small12', 16): (1.0, 0.05),
    ('small24', 8): (1e-5, 0.1),
    ('medium24', 16): (1e-5, 0.15),
    ('large24', 16): (1e-5, 0.25),
    ('large24', 8): (1e-5, 0.3),
}


@pytest.mark.parametrize(('arch', 'patch_size'), PUBLISHED)
def test_layer_scale_and_stochastic_depth_are_the_published_ones(arch, patch_size):
    layer_scale, rate = PUBLISHED[arch, patch_size]
    with torch.device('meta'):
        backbone = XCiT(arch, patch_size, out_indices=(0, 1))
    assert {layer.drop_path.drop_prob for layer in backbone.blocks} == {rate}
    assert backbone.arch['layer_scale'] == layer_scale


def test_layer_scale_may_be_a_whole_number():
    assert XCiT('nano12', out_indices=(0,), layer_scale=1).blocks[0].gamma2.dtype == torch.float32


def test_layer_scale_and_stochastic_depth_can_be_chosen():
    backbone = XCiT('large24', 8, out_indices=(0,), layer_scale=0.5, drop_path_rate=0.0)
    layer = backbone.blocks[0]
    assert layer.drop_path.drop_prob == 0
    assert all(torch.equal(g, torch.full((768,), 0.5)) for g in (layer.gamma1, layer.gamma3))


BUFFERS = ('running_mean', 'running_var', 'num_batches_tracked')


@pytest.mark.parametrize('layout', ['xcit_tiny_12_p16', 'xcit_nano_12_p8', 'xcit_small_12_p16'])
def test_parameters_are_those_of_the_dense_layout_less_the_pyramid(layout):
    _, size, depth, patch = layout.split('_')
    shapes = official_shapes(f'{layout}__dense')
    fpn = [key for key in shapes if key.startswith('fpn') and not key.endswith(BUFFERS)]
    pyramid = sum(prod(shapes[key]) for key in fpn)
    with torch.device('meta'):
        backbone = XCiT(size + depth, int(patch[1:]))
    count = sum(p.numel() for p in backbone.parameters())
    assert count == official_parameters(f'{layout}__dense') - pyramid


def test_image_smaller_than_a_patch_is_one_token():
    """As in the authors' code, whose convolutions round up."""
    maps = XCiT(dict(embed_dims=32, num_heads=2, depth=2)).eval()(torch.zeros(1, 3, 5, 40))
    assert maps[-1].shape == (1, 32, 1, 3)
