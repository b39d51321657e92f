"""The authors' files, by every way on which weights come into a model."""

import pytest
import torch
from helpers import image, official_state
from mmengine.registry import MODELS

from mmbixt.backbones import BiFormer
from mmbixt.checkpoints.state_dict import CheckpointMismatchError

LAYOUTS = {
    'biformer_tiny': 'tiny',
    'biformer_tiny__dense': 'tiny',
    'biformer_stl': 'stl',
    'biformer_stl_nchw': 'stl-nchw',
}


def our_name(key):
    key = key.replace('.qkv_linear.', '.qkv.qkv.').replace('.output_linear.', '.wo.')
    return key.replace('.blocks.', '.').replace('.mlp.2.', '.mlp.3.')


@pytest.mark.parametrize('layout', LAYOUTS)
def test_layout_fills_its_model_through_init_cfg(tmp_path, layout):
    state = official_state(layout)
    torch.save({'model': state, 'epoch': 300}, tmp_path / 'biformer.pth')
    init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'biformer.pth'))
    backbone = MODELS.build(dict(type='mmbixt.BiFormer', arch=LAYOUTS[layout], init_cfg=init_cfg))
    backbone.init_weights()
    own = backbone.state_dict()
    taken = {our_name(key): value for key, value in state.items() if our_name(key) in own}
    fresh = {key for key in own if own[key].is_floating_point()} - set(taken)
    assert all(key.startswith('extra_norms.') for key in fresh)
    assert bool(fresh) != layout.endswith('__dense')
    assert all(torch.equal(own[key], value.view_as(own[key])) for key, value in taken.items())


def test_dense_files_of_the_authors_have_our_names():
    with torch.device('meta'):
        own = set(BiFormer('small').state_dict())
    theirs = set(official_state('biformer_small__dense'))
    assert {key for key in own if not key.endswith('num_batches_tracked')} == theirs


def test_same_weights_in_both_codes_give_the_same_maps():
    """Where no region is padded, but for what LePE sees in the last stage."""
    rows = official_state('biformer_stl')
    columns = {
        key.replace('.qkv.qkv.', '.qkv_linear.').replace('.wo.', '.output_linear.'): value
        for key, value in rows.items()
    }
    linear = ('qkv_linear.weight', 'output_linear.weight', 'mlp.0.weight', 'mlp.2.weight')
    linear = (*linear, 'attn.qkv.weight', 'attn.proj.weight')
    for key in columns:
        if key.endswith(linear):
            columns[key] = columns[key][:, :, None, None]
    maps = []
    for arch, state in (('stl', rows), ('stl-nchw', columns)):
        backbone = BiFormer(arch, 2, topks=(1, 2, 4, -2), out_indices=(0, 1, 2)).eval()
        backbone.load_state_dict(state)
        with torch.no_grad():
            maps.append(backbone(image(1, 64, 32)))
    for actual, expected in zip(*maps, strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize(
    ('layout', 'arch', 'message'),
    [
        ('biformer_stl', 'stl-nchw', "The file is of arch='stl'"),
        ('biformer_stl_nchw', 'tiny', "The file is of arch='stl-nchw'"),
        ('biformer_tiny', 'stl', "The file is of arch='tiny', 'small' or 'base'"),
        ('biformer_tiny', 'small', r'has stages of .* \[\(2, 64\).*model \[\(4, 64\)'),
        ('biformer_small', 'tiny', r'has stages of .* \[\(4, 64\).*model \[\(2, 64\)'),
        ('biformer_base', 'small', 'BiFormer, 4 . 4 . 18 . 4 blocks, widths 96, 192, 384, 768'),
        ('xcit_nano_12_p16', 'tiny', 'seems to be XCiT'),
    ],
)
def test_another_model_is_named(layout, arch, message):
    with pytest.raises(CheckpointMismatchError, match=message):
        BiFormer(arch).load_state_dict(official_state(layout), strict=False)
