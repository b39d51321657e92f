"""The authors' files and timm's, by every way on which weights come into a model."""

import pytest
import torch
from helpers import assert_close, image, official_state
from mmengine.registry import MODELS

from mmbixt.backbones import XCiT
from mmbixt.checkpoints.state_dict import CheckpointMismatchError

LAYOUTS = {
    'xcit_tiny_12_p16': dict(arch='tiny12'),
    'xcit_tiny_12_p16__timm': dict(arch='tiny12'),
    'xcit_tiny_12_p8__dense': dict(arch='tiny12', patch_size=8),
    'xcit_nano_12_p8__timm': dict(arch='nano12', patch_size=8),
}


def authors_name(key):
    return key.replace('pos_embed.', 'pos_embeder.')


@pytest.mark.parametrize('layout', LAYOUTS)
def test_layout_fills_its_model_through_init_cfg(tmp_path, layout):
    state = official_state(layout)
    torch.save({'model': state, 'epoch': 400}, tmp_path / 'xcit.pth')
    init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'xcit.pth'))
    config = dict(type='mmbixt.XCiT', init_cfg=init_cfg, **LAYOUTS[layout])
    backbone = MODELS.build(config)
    backbone.init_weights()
    own = backbone.state_dict()
    taken = {authors_name(key): value for key, value in state.items() if authors_name(key) in own}
    assert {key for key in own if own[key].is_floating_point()} == set(taken)
    assert all(torch.equal(own[key], value) for key, value in taken.items())


def test_same_weights_from_the_authors_and_from_timm_give_the_same_maps():
    state = official_state('xcit_nano_12_p8')
    timms = {key.replace('pos_embeder.', 'pos_embed.'): value for key, value in state.items()}
    for layer in range(2):  # of class attention, which timm splits
        for kind in ('weight', 'bias'):
            whole = timms.pop(f'cls_attn_blocks.{layer}.attn.qkv.{kind}')
            for name, part in zip('qkv', whole.chunk(3), strict=True):
                timms[f'cls_attn_blocks.{layer}.attn.{name}.{kind}'] = part
    maps = []
    for weights in (state, timms):
        backbone = XCiT('nano12', 8).eval()
        backbone.load_state_dict(weights)
        with torch.no_grad():
            maps.append(backbone(image(1, 40, 32))[-1])
    assert torch.equal(*maps)


def test_timm_itself_agrees():
    """Their model and ours, the same weights: the tokens of the last layer."""
    timm = pytest.importorskip('timm')
    theirs = timm.create_model('xcit_nano_12_p16_224', num_classes=10).eval()
    ours = XCiT('nano12').eval()
    ours.load_state_dict(theirs.state_dict())
    seen = []
    theirs.blocks[11].register_forward_hook(lambda *args: seen.append(args[2]))
    x = image(1, 96, 64)
    with torch.no_grad():
        theirs(x)
        tokens = ours(x)[-1].flatten(2).transpose(1, 2)
    assert_close(tokens, seen[0], 1e-5)


def test_layers_that_no_output_needs_are_dropped():
    state = official_state('xcit_tiny_12_p16')
    XCiT('tiny12', out_indices=(3, 5)).load_state_dict(state)


@pytest.mark.parametrize(
    ('layout', 'options', 'message'),
    [
        ('xcit_tiny_24_p16', dict(arch='tiny12'), 'The file has 24 layers, the model 12'),
        ('xcit_tiny_12_p16', dict(arch='tiny24'), 'The file has 12 layers, the model 24'),
        ('xcit_tiny_12_p8', dict(arch='tiny12'), 'of patch_size=8, the model of 16'),
        ('xcit_nano_12_p16', dict(arch='tiny12'), 'seems to be XCiT, width 128'),
        ('bixt_ti_l64_p16', dict(arch='tiny12'), 'seems to be BiXT'),
    ],
)
def test_another_model_is_named(layout, options, message):
    with pytest.raises(CheckpointMismatchError, match=message):
        XCiT(**options).load_state_dict(official_state(layout), strict=False)
