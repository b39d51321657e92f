from itertools import product

import pytest
import torch
from helpers import formulation, golden, image, official_state

from mmbixt.backbones import XCiT
from mmbixt.necks import FeaturePyramidAdapter

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
    for path, (height, width) in product(('fast', 'definition'), sizes):
        with formulation(path):
            maps = backbone(image(1, height, width))
            levels = pyramid(maps)
        reference = golden(f'xcit_{name}__dense__{height}x{width}')
        for i in range(4):
            assert reference.check(f'pre{i}', maps[i].numpy()) < 2e-5
            assert reference.check(f'post{i}', levels[i].numpy()) < 2e-5


PUBLISHED = {  # layer scale, stochastic depth: paper and released code
    ('tiny24', 16): (1e-5, 0.05),
    ('small12', 16): (1.0, 0.05),
    ('medium24', 16): (1e-5, 0.15),
    ('large24', 8): (1e-5, 0.3),
}


@pytest.mark.parametrize(('arch', 'patch_size'), PUBLISHED)
def test_layer_scale_and_stochastic_depth_are_the_published_ones(arch, patch_size):
    layer_scale, rate = PUBLISHED[arch, patch_size]
    with torch.device('meta'):
        backbone = XCiT(arch, patch_size, out_indices=(0, 1))
    assert {layer.drop_path.drop_prob for layer in backbone.blocks} == {rate}
    assert backbone.arch['layer_scale'] == layer_scale
