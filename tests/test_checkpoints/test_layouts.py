"""Published files of all families: each fills its model, and no other model.

``test_backbones/test_published.py`` has the names of all.
"""

import re

import pytest
import torch
from helpers import image
from mmengine.logging import MMLogger
from mmengine.registry import MODELS
from test_checkpoints.layouts import build_meta, meta_state, random_state

from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT
from mmbixt.checkpoints.state_dict import CheckpointMismatchError, load_whole_state, unwrap

# one for each way of renaming
LAYOUTS = {
    'bixt_ti_l64_d13_p16': dict(type=BiXT, with_latents=True),
    'biformer_tiny__dense': dict(type=BiFormer, arch='tiny'),
    'biformer_stl': dict(type=BiFormer, arch='stl'),
    'biformer_stl_nchw': dict(type=BiFormer, arch='stl-nchw'),
    'xcit_nano_12_p8__timm': dict(type=XCiT, arch='nano12', patch_size=8),
    'swin_tiny_microsoft': dict(type=BiSASwin, bisa_stages=(0,)),
}


@pytest.mark.parametrize('layout', LAYOUTS)
def test_layout_fills_its_model_through_init_cfg(save, layout):
    state = random_state(layout)
    if layout.startswith('swin'):  # has no use: both follow from sizes
        state['layers.0.blocks.0.attn.relative_position_index'] = torch.zeros(49, 49).long()
        state['layers.0.blocks.1.attn_mask'] = torch.zeros(64, 49, 49)
    init_cfg = dict(type='Pretrained', checkpoint=save({'model': state, 'epoch': 300}))
    backbone = MODELS.build(dict(LAYOUTS[layout], init_cfg=init_cfg))
    first = {key: value.clone() for key, value in backbone.state_dict().items()}
    backbone.init_weights()
    fresh = {key for key, value in backbone.state_dict().items() if torch.equal(value, first[key])}
    fresh -= set(dict(backbone.named_buffers()))
    assert all(re.match(r'extra_norms\.|norm\d\.|.*\.isa\.', key) for key in fresh)
    # only files of dense models have these norms
    assert bool(fresh) == layout.startswith(('biformer_stl', 'swin'))


def test_same_weights_in_both_codes_of_biformer_give_the_same_outputs():
    """Where no region is padded, but for what LePE sees in the last stage."""
    rows, columns = random_state('biformer_stl'), {}
    rows = {key: value.abs() * 0.02 for key, value in rows.items()}  # also variances
    linear = r'(qkv_linear|output_linear|mlp\.[02]|attn\.qkv|attn\.proj)\.weight$'
    for key, value in rows.items():
        name = key.replace('.qkv.qkv.', '.qkv_linear.').replace('.wo.', '.output_linear.')
        columns[name] = value[:, :, None, None] if re.search(linear, name) else value
    outputs = []
    for arch, state in (('stl', rows), ('stl-nchw', columns)):
        backbone = BiFormer(arch, 2, topks=(1, 2, 4, -2), out_indices=(0, 1, 2)).eval()
        backbone.load_state_dict(state)
        with torch.no_grad():
            outputs.append(backbone(image(1, 64, 32)))
    for actual, expected in zip(*outputs, strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize(
    ('layout', 'model', 'options', 'message'),
    [
        ('bixt_ti_l64_d13_p16', BiXT, dict(out_indices=(3, 5)), r'no use .* blocks\.10 \('),
        ('bixt_ti_l64_d13_p16', BiXT, dict(token_refiner='lpi'), r'afresh: blocks\.0 \('),
        ('xcit_tiny_12_p16', XCiT, dict(arch='tiny12', out_indices=(3, 5)), r'blocks\.6 \('),
        ('swin_tiny_mmseg', BiSASwin, dict(out_indices=(0, 2)), r'no use .* norm1 \(2\), norm3'),
        ('swin_tiny_timm', BiSASwin, dict(lam='learned'), r'afresh: norm0.*, stages\.0 \(8\)'),
    ],
)
def test_what_is_dropped_or_fresh_is_logged(caplog, monkeypatch, layout, model, options, message):
    monkeypatch.setattr(MMLogger.get_current_instance(), 'handlers', [caplog.handler])
    build_meta(model, **options).load_state_dict(meta_state(layout))
    assert re.search(message, caplog.text)


def without_one():
    state = meta_state('swin_tiny_timm')
    del state['layers.2.blocks.4.norm2.weight']
    return state


def bisa_swin(**options):
    return build_meta(BiSASwin, **options).state_dict()


# its names too have a 'downsample' in them
RESNET = dict.fromkeys(('layer1.0.conv1.weight', 'layer2.0.downsample.0.weight'), torch.zeros(8))
PLAIN = dict(bisa_stages=())


@pytest.mark.parametrize(
    ('state', 'model', 'options', 'message'),
    [
        ('bixt_ti_l64_p16', BiXT, {}, '(?s)seems to be BiXT.*the backbone with depth=11'),
        ('bixt_ti_l64_d13_p16', BiXT, dict(num_latents=128), r'latents: \(1, 64, 192\) in the fi'),
        ('biformer_stl', BiFormer, dict(arch='stl-nchw'), "The file is of arch='stl'"),
        ('biformer_tiny', BiFormer, dict(arch='stl'), "arch='tiny', 'small' or 'base'"),
        ('biformer_base', BiFormer, dict(arch='small'), 'seems to be BiFormer'),
        ('xcit_tiny_12_p8', XCiT, dict(arch='tiny12'), 'patch_size=8, the model 12 and 16'),
        ('xcit_nano_12_p16', BiFormer, dict(arch='tiny'), 'seems to be XCiT'),
        (without_one, BiSASwin, PLAIN, r'1 of 189.*\.2\.blocks\.4\.norm2'),
        (bisa_swin, BiSASwin, PLAIN, r'Not in the model: 6 .*w_msa\.isa\.G'),
        (lambda: bisa_swin(window_size=12), BiSASwin, {}, 'backbone with window_size=12'),
        (lambda: RESNET, BiSASwin, PLAIN, 'seems to be ResNet'),
    ],
)
def test_another_model_is_named(state, model, options, message):
    state = state() if callable(state) else meta_state(state)
    with pytest.raises(CheckpointMismatchError, match=message):
        build_meta(model, **options).load_state_dict(state, strict=False)


def test_backbone_of_a_whole_model(save):
    state = {f'backbone.{k}': x for k, x in random_state('xcit_nano_12_p16__timm').items()}
    init = dict(type='Pretrained', checkpoint=save({'state_dict': state}))
    with pytest.raises(CheckpointMismatchError, match=r"(?s)whole mm model.*prefix='backbone.'"):
        XCiT('nano12', init_cfg=init).init_weights()
    backbone = XCiT('nano12', init_cfg={**init, 'prefix': 'backbone.'})
    backbone.init_weights()
    key = 'blocks.11.attn.qkv.weight'
    assert torch.equal(backbone.state_dict()[key], state[f'backbone.{key}'])


def test_unwrap():
    plain = {'a': torch.zeros(1), 'module_b': torch.zeros(1)}
    wrapped = {f'_orig_mod.module.{key}': value for key, value in plain.items()}
    itself = {'epoch': 3, **plain}
    itself['model'] = itself
    for checkpoint in (plain, {'model_ema': {**wrapped, 'steps': 7}}, itself):
        assert unwrap(checkpoint) == plain


def test_whole_state_leaves_no_weight_as_it_was():
    """But batches, which old files do not count; what is left over is a classifier's."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    state = {k: torch.full_like(x, 3) for k, x in model.state_dict().items() if 'tracked' not in k}
    load_whole_state(model, {**state, 'head': torch.zeros(2)})
    assert all((value == 3).all() for key, value in model.state_dict().items() if key in state)
    with pytest.raises(CheckpointMismatchError, match=r'(?s)does not fit.*0\.bias'):
        load_whole_state(model, {**state, '0.bias': torch.zeros(5)})
    del state['0.bias']
    with pytest.raises(CheckpointMismatchError, match=r'lacks 1 weights of the model: 0\.bias'):
        load_whole_state(model, state)
