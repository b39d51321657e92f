"""Published files of all families: each fills its model through init_cfg, and no other model."""

import re

import pytest
import torch
from mmengine.registry import MODELS
from test_checkpoints.layouts import build_meta, meta_state, random_state

from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT
from mmbixt.checkpoints.state_dict import CheckpointMismatchError

# one for each way of renaming; test_published.py has the names of all
LAYOUTS = {
    'bixt_ti_l64_d13_p16': dict(type=BiXT, with_latents=True),
    'biformer_tiny__dense': dict(type=BiFormer, arch='tiny'),
    'biformer_stl': dict(type=BiFormer, arch='stl'),
    'biformer_stl_nchw': dict(type=BiFormer, arch='stl-nchw'),
    'xcit_nano_12_p8__timm': dict(type=XCiT, arch='nano12', patch_size=8),
}
OUR_NAMES = {
    r'\.qkv_linear\.': '.qkv.qkv.',
    r'\.output_linear\.': '.wo.',
    r'^(stages\.\d+)\.blocks\.': r'\1.',
    r'\.mlp\.2\.': '.mlp.3.',
    r'^pos_embed\.': 'pos_embeder.',
}


def our_name(key, layout):
    if layout.startswith('bixt'):
        return key
    for theirs, ours in OUR_NAMES.items():
        key = re.sub(theirs, ours, key)
    return key


@pytest.mark.parametrize('layout', LAYOUTS)
def test_layout_fills_its_model_through_init_cfg(tmp_path, layout):
    state = random_state(layout)
    torch.save({'model': state, 'epoch': 300}, tmp_path / 'model.pth')
    init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'model.pth'))
    backbone = MODELS.build(dict(LAYOUTS[layout], init_cfg=init_cfg))
    backbone.init_weights()
    own = backbone.state_dict()
    names = {our_name(key, layout): key for key in state}
    taken = {name: state[key] for name, key in names.items() if name in own}
    fresh = {key for key in own if own[key].is_floating_point()} - set(taken)
    assert all(key.startswith('extra_norms.') for key in fresh)
    # only files of dense models of BiFormer have these norms
    assert bool(fresh) == (layout.startswith('biformer') and not layout.endswith('__dense'))
    assert all(torch.equal(own[key], value.view_as(own[key])) for key, value in taken.items())


@pytest.mark.parametrize(
    ('layout', 'model', 'options', 'message'),
    [
        ('bixt_ti_l64_p16', BiXT, {}, '(?s)64 latents, 11 layers.*the backbone with depth=11'),
        ('bixt_ed256_l64_p16', BiXT, dict(depth=11), 'seems to be BiXT, width 256'),
        ('bixt_ti_l64_d13_p16', BiXT, dict(num_latents=128), r'latents: \(1, 64, 192\) in the fi'),
        ('bixt_ed256LS_l64_p16s8', BiXT, dict(arch='d256', patch_stride=8), r'.*ls1\.gamma'),
        ('xcit_tiny_12_p16__dense', BiXT, {}, 'seems to be XCiT'),
        ('biformer_stl', BiFormer, dict(arch='stl-nchw'), "The file is of arch='stl'"),
        ('biformer_stl_nchw', BiFormer, dict(arch='tiny'), "The file is of arch='stl-nchw'"),
        ('biformer_tiny', BiFormer, dict(arch='stl'), "arch='tiny', 'small' or 'base'"),
        ('biformer_tiny', BiFormer, dict(arch='small'), r'stages of .* \[\(2, 64\).*el \[\(4, 64'),
        ('biformer_base', BiFormer, dict(arch='small'), 'BiFormer, 4 . 4 . 18 . 4 blocks, widths'),
        ('xcit_nano_12_p16', BiFormer, dict(arch='tiny'), 'seems to be XCiT'),
        ('xcit_tiny_24_p16', XCiT, dict(arch='tiny12'), 'file has 24 layers, the model 12'),
        ('xcit_tiny_12_p8', XCiT, dict(arch='tiny12'), 'of patch_size=8, the model of 16'),
        ('xcit_nano_12_p16', XCiT, dict(arch='tiny12'), 'seems to be XCiT, width 128'),
        ('bixt_ti_l64_p16', XCiT, dict(arch='tiny12'), 'seems to be BiXT'),
        ('xcit_tiny_12_p16__dense', BiSASwin, {}, 'seems to be XCiT'),
    ],
)
def test_another_model_is_named(layout, model, options, message):
    with pytest.raises(CheckpointMismatchError, match=message):
        build_meta(model, **options).load_state_dict(meta_state(layout), strict=False)
