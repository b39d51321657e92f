"""Files of all families, and whole models, load into their model and into no other.

`make test-zoo` compares the names of all published files, in ``test_classifiers.py``.
"""

import logging
from functools import partial
from pathlib import Path

import pytest
import timm
import torch
from helpers import golden, image, official_parameters, official_state
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import load_checkpoint
from test_checkpoints.layouts import build_meta, meta_state, random_state

import mmbixt.timm  # noqa: F401 (for the names)
from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT
from mmbixt.backbones.weights import load_whole_state
from mmbixt.checkpoints.errors import CheckpointMismatchError
from mmbixt.checkpoints.loader import load
from mmbixt.checkpoints.state_dict import rename_whole
from mmbixt.config import read_config


def without_matrix():
    """B, which some versions of the authors' code do not have."""
    state = meta_state('bisa_swin_tiny_additive')
    del state['layers.0.blocks.1.attn.bias_generator.weight']
    return state


def of_another_shape(name):
    """A weight whose conversion fails."""
    return meta_state('bisa_swin_tiny_additive') | {name: torch.empty(7, 5, device='meta')}


def of_integers():
    return {key: x.to(torch.int8) for key, x in meta_state('xcit_nano_12_p16').items()}


RESNET = {'layer1.0.conv1.weight': torch.zeros(8)}
G = 'blocks.0.attn.G.weight'
PLAIN = dict(bisa_stages=())
ADDITIVE = dict(projection='additive', lam='learned')
NANO = r"xcit_nano_12_p16 \(mmbixt\.XCiT, arch='nano12', patch_size=16\)"


@pytest.mark.parametrize(
    ('state', 'model', 'options', 'message'),
    [
        ('xcit_nano_12_p16', BiFormer, {}, f'do not fit mmbixt.BiFormer: the file is {NANO}'),
        ('bixt_ti_l64_p16', BiXT, {}, 'the file is bixt_ti_l64_p16 .*depth=11'),
        ('bixt_ti_l64_d13_p16', BiXT, dict(num_latents=128), r'latents: \(1, 64, 192\) in the fi'),
        ('bixt_ti_l64_d13_p16', BiXT, dict(depth=11), 'Not in the model: .*blocks.12'),
        ('biformer_stl', BiFormer, dict(arch='small'), "arch='stl'"),
        ('bisa_swin_tiny_additive', BiSASwin, {}, "the file is .*'additive', lam='learned'"),
        (without_matrix, BiSASwin, ADDITIVE, r'1 of 2\d\d.*\.0\.blocks\.1\.attn\.w_msa\.isa\.B'),
        (of_integers, XCiT, dict(arch='nano12'), r'another shape or type: .*torch\.int8'),
        *(
            (partial(of_another_shape, f'layers.0.{name}'), BiSASwin, ADDITIVE, r'\(7, 5\) in the')
            for name in ('downsample.reduction.weight', 'blocks.0.attn.selection_lambda', G)
        ),
        (lambda: RESNET, BiSASwin, PLAIN, 'seems to be of another network'),
    ],
)
def test_files_of_other_models_are_refused_and_named(state, model, options, message):
    state = state() if callable(state) else meta_state(state)
    with pytest.raises(CheckpointMismatchError, match=message) as caught:
        build_meta(model, **options).load_state_dict(state, strict=False)
    assert str(caught.value).endswith('Nothing was loaded.')


SMALL = 'xcit_nano_12_p16'


def test_the_error_about_a_whole_model_names_the_prefix_that_works(save):
    weights = random_state(f'{SMALL}__timm')
    named = {f'module.backbone.{key}': value for key, value in weights.items()}
    init = dict(type='Pretrained', checkpoint=Path(save({'model': named, 'epoch': 3})))
    with pytest.raises(CheckpointMismatchError, match=r"prefix='backbone\.'"):
        XCiT('nano12', init_cfg=init).init_weights()
    backbone = XCiT('nano12', init_cfg={**init, 'prefix': 'backbone.'})
    backbone.init_weights()
    key = 'blocks.11.attn.qkv.weight'
    assert torch.equal(backbone.state_dict()[key], weights[key])


def test_the_file_of_a_backbone_is_not_for_load_from(save):
    init_default_scope('mmseg')
    model = build_meta(build, name='upernet_xcit_t12_p8_ade20k')
    with pytest.raises(CheckpointMismatchError, match=r"begins with 'backbone\.'.*init_cfg"):
        load_checkpoint(model, save(random_state(SMALL)))
    with pytest.raises(CheckpointMismatchError, match=r'model\.head\.load_state_dict'):
        model.load_state_dict(model.decode_head.state_dict(prefix='decode_head.'), strict=False)


@pytest.mark.parametrize(
    ('raw', 'averaged'),
    [('state_dict', 'state_dict_ema'), ('model', 'model_ema'), ('model', 'ema')],
)
def test_averaged_weights_are_used_by_every_reader(raw, averaged, save, caplog):
    logging.getLogger('mmbixt').addHandler(caplog.handler)
    state = random_state(SMALL)
    wrapped = {f'_orig_mod.module.{key}': x for key, x in state.items()}
    file = save({raw: {key: x + 1 for key, x in state.items()}, averaged: {**wrapped, 'steps': 7}})
    backbone = XCiT('nano12', init_cfg=dict(type='Pretrained', checkpoint=file))
    backbone.init_weights()
    logging.getLogger('mmbixt').removeHandler(caplog.handler)
    assert caplog.text.count(f'The averaged weights of the file are used: {averaged}') == 1
    options = dict(pretrained=True, pretrained_cfg_overlay=dict(file=file))
    readers = [backbone.state_dict(), load(file)['state_dict']]
    if averaged != 'ema':  # timm's reader, which knows only the others
        readers.append(timm.create_model(f'{SMALL}_pyramid', **options).state_dict())
    key = 'blocks.11.attn.qkv.weight'
    for weights in readers:
        assert torch.equal(weights[key], state[key])


def test_load_whole_state_needs_all_weights():
    """Except counts of batches, which old files lack; surplus weights are ignored."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    state = {k: torch.full_like(x, 3) for k, x in model.state_dict().items() if 'tracked' not in k}
    load_whole_state(model, {**state, 'head': torch.zeros(2)})
    assert all((value == 3).all() for key, value in model.state_dict().items() if key in state)
    with pytest.raises(CheckpointMismatchError, match=r'(?s)does not fit Sequential.*0\.bias'):
        load_whole_state(model, {**state, '0.bias': torch.zeros(5)})
    del state['0.bias']
    with pytest.raises(CheckpointMismatchError, match=r'lacks weights of Sequential: 0\.bias'):
        load_whole_state(model, state)
    model = torch.nn.ModuleDict(dict(backbone=model))  # other layers would change what heads get
    state = {**model.state_dict(), 'backbone.1.other': torch.zeros(3, 3)}
    with pytest.raises(CheckpointMismatchError, match=r'that ModuleDict lacks: backbone\.1\.other'):
        load_whole_state(model, state)


# of files of the XCiT authors' dense code, written with mmcv 1.x
META = dict(mmcv_version='1.3.0', CLASSES=('wall', 'building'), PALETTE=[[1, 2, 3], [4, 5, 6]])


def build(name):
    cfg = read_config(name)
    init_default_scope(cfg.default_scope)
    return MODELS.build(cfg.model).eval()


def test_all_weights_of_a_whole_model_are_used():
    layout = 'whole__upernet_xcit_tiny_12_p8'
    model = build_meta(build, name='upernet_xcit_t12_p8_ade20k')
    converted = rename_whole(meta_state(layout))
    missing, unexpected = model.load_state_dict(converted, strict=False)
    assert all(key.endswith('num_batches_tracked') for key in missing)
    assert not unexpected
    assert sum(p.numel() for p in model.parameters()) == official_parameters(layout)


def test_golden_of_a_whole_segmentor(save):
    state = official_state('whole__sem_fpn_xcit_tiny_12_p16')
    file = save(dict(meta=META, state_dict=state, epoch=7))
    loaded = load(file)
    assert (loaded['meta'], loaded['epoch']) == (META, 7)
    model = build('semfpn_xcit_t12_p16_ade20k')
    load_checkpoint(model, file, map_location='cpu')
    with torch.no_grad():
        logits = model(image(1, 96, 160), mode='tensor')
    reference = golden('sem_fpn_xcit_tiny_12_p16__logits__96x160')
    assert reference.check('logits', logits.numpy()) < 2e-5


def test_whole_detectors_are_converted(save):
    """A file is made from mmbixt's model: mmdet's heads have the same names since 2.x."""
    model = build('maskrcnn_xcit_t12_p16_3x_coco')
    official = {
        key.replace('neck.0.fpn', 'backbone.fpn').replace('neck.1.', 'neck.'): value + 1
        for key, value in model.state_dict().items()
    }
    assert {'backbone.fpn1.0.weight', 'neck.fpn_convs.0.conv.weight'} <= set(official)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    file = save(dict(meta=META, state_dict=official))
    load_checkpoint(model, file, map_location='cpu', strict=True)
    assert all(torch.equal(value, before[key] + 1) for key, value in model.state_dict().items())


def test_the_adapter_may_be_a_list_of_one_neck(save):
    """mmengine only logs missing weights."""
    config = dict(type='mmbixt.FeaturePyramidAdapter', in_channels=8, in_strides=16)
    saved = {f'backbone.{k}': x + 1 for k, x in MODELS.build(config).state_dict().items()}
    position = {'backbone.pos_embeder.token_projection.weight': torch.zeros(1)}
    file = save(dict(state_dict=saved | position))
    for neck in (config, [config]):
        model = torch.nn.ModuleDict(dict(neck=MODELS.build(neck)))
        load_checkpoint(model, file)
        for key, value in model.state_dict().items():
            name = key.replace('neck.0.', 'backbone.').replace('neck.', 'backbone.')
            assert torch.equal(value, saved[name])
    others = save(dict(state_dict=saved))  # such as MAE's, with a pyramid in the backbone
    assert load(others)['state_dict'].keys() == saved.keys()
