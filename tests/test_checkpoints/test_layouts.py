"""Files of all families, and whole models, load into their model and into no other.

``test_backbones/test_published.py`` compares the names of all published files.
"""

import os
import re

import pytest
import torch
from helpers import CONFIGS, golden, image, official_parameters, official_state
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import load_checkpoint, load_state_dict
from test_checkpoints.layouts import build_meta, meta_state, random_state

from mmbixt.backbones import BiFormer, BiSASwin, BiXT, XCiT
from mmbixt.checkpoints.loader import convert_whole_model, load
from mmbixt.checkpoints.state_dict import CheckpointMismatchError, load_whole_state, unwrap


def test_same_weights_in_both_codes_of_biformer_give_the_same_outputs():
    """If no region is padded. The last stage differs: its LePE covers padding in one code only."""
    rows, columns = random_state('biformer_stl'), {}
    rows = {key: value.abs() * 0.02 for key, value in rows.items()}  # variances must be positive
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


def bisa_swin(**options):
    return build_meta(BiSASwin, **options).state_dict()


LEARNED = dict(lam='learned', lam_init=0.99)


@pytest.mark.parametrize(
    ('layout', 'model', 'options', 'message'),
    [
        ('bixt_ti_l64_d13_p16', BiXT, dict(out_indices=(3, 5)), r'not use .* blocks\.10 \('),
        ('swin_tiny_mmseg', BiSASwin, dict(out_indices=(0, 2)), r'not use .* norm1 \(2\), norm3'),
        ('swin_tiny_timm', BiSASwin, dict(lam='learned'), r'anew: norm0.*, stages\.0 \(8\)'),
        ('swin_tiny_timm', BiSASwin, LEARNED, r'attention is 0\.01 at first \(lam_init=0\.99\)'),
        (dict(lam=0.5), BiSASwin, LEARNED, r'a fixed lam, .* begins at lam_init=0\.99\.'),
    ],
)
def test_dropped_and_new_weights_are_logged(caplog, monkeypatch, layout, model, options, message):
    monkeypatch.setattr(MMLogger.get_current_instance(), 'handlers', [caplog.handler])
    state = bisa_swin(**layout) if isinstance(layout, dict) else meta_state(layout)
    build_meta(model, **options).load_state_dict(state)
    assert re.search(message, caplog.text)


def without_one():
    state = meta_state('swin_tiny_timm')
    del state['layers.2.blocks.4.norm2.weight']
    return state


def learned():
    """Weights of which only one has a value: the logit of a share of 0.75."""
    return {**bisa_swin(lam='learned'), LOGIT: torch.tensor([3.0]).log()}


def of_integers():
    return {key: x.to(torch.int8) for key, x in meta_state('swin_tiny_timm').items()}


LOGIT = 'stages.0.blocks.1.attn.w_msa.lam_logit'
# its names also contain 'downsample'
RESNET = dict.fromkeys(('layer1.0.conv1.weight', 'layer2.0.downsample.0.weight'), torch.zeros(8))
PLAIN = dict(bisa_stages=())


@pytest.mark.parametrize(
    ('state', 'model', 'options', 'message'),
    [
        ('bixt_ti_l64_p16', BiXT, {}, '(?s)is bixt_ti_l64_p16 .*model: set depth=11'),
        ('bixt_ti_l64_d13_p16', BiXT, dict(num_latents=128), r'latents: \(1, 64, 192\) in the fi'),
        ('biformer_stl', BiFormer, dict(arch='stl-nchw'), "The file is of arch='stl'"),
        ('biformer_tiny', BiFormer, dict(arch='stl'), "arch='tiny', 'small' or 'base'"),
        ('xcit_tiny_12_p8', XCiT, dict(arch='tiny12'), 'patch_size=8, the model 12 and 16'),
        (without_one, BiSASwin, PLAIN, r'1 of 189.*\.2\.blocks\.4\.norm2'),
        (of_integers, BiSASwin, PLAIN, 'shape or type: .*int8 in the file, float32 here'),
        (bisa_swin, BiSASwin, PLAIN, r'Not in the model: 6 .*w_msa\.isa\.G'),
        (bisa_swin, BiSASwin, dict(bisa_stages=(1,)), r'backbone with bisa_stages=\(0,\)'),
        (learned, BiSASwin, {}, r"(?s)nearly bisa_swin_tiny.* \(0\.75\), .* with lam='learned'"),
        (lambda: bisa_swin(window_size=12), BiSASwin, {}, 'backbone with window_size=12'),
        (lambda: RESNET, BiSASwin, PLAIN, 'seems to be ResNet'),
    ],
)
def test_files_of_other_models_are_refused_and_named(state, model, options, message):
    state = state() if callable(state) else meta_state(state)
    with pytest.raises(CheckpointMismatchError, match=message):
        build_meta(model, **options).load_state_dict(state, strict=False)


NANO = r"xcit_nano_12_p16 \(mmbixt\.XCiT, arch='nano12', patch_size=16\)"


@pytest.mark.parametrize(
    ('container', 'before', 'prefix', 'message'),
    [
        ('state_dict', 'backbone.', None, rf"what begins with 'backbone\.' is {NANO}"),
        ('state_dict', 'backbone.', 'nowhere.', r"prefix='backbone\.'"),
        ('state_dict', 'model.backbone.', 'model', r"prefix='model\.backbone\.'"),
        ('model', 'module.encoder.', None, rf"what begins with 'encoder\.' is {NANO}"),
        ('teacher', 'module.', None, rf"what begins with 'teacher\.module\.' is {NANO}"),
        ('model', '', 'backbone.', r'fits without a prefix\.'),
    ],
)
def test_the_error_about_a_larger_model_says_what_to_write(
    save, container, before, prefix, message
):
    """And that works: also where mmengine's reader alone finds no such prefix."""
    weights = random_state('xcit_nano_12_p16__timm')
    named = {before + key: value for key, value in weights.items()}
    if before:
        named |= {
            f'{before.replace("backbone", "neck")}head.{i}': weights['norm.bias'] for i in 'ab'
        }
    init = dict(type='Pretrained', checkpoint=save({container: named, 'epoch': 3}))
    with pytest.raises(CheckpointMismatchError, match=re.escape(init['checkpoint'])) as info:
        XCiT('nano12', init_cfg=init | (dict(prefix=prefix) if prefix else {})).init_weights()
    assert re.search(message, str(info.value))
    if before:
        (setting,) = re.findall(r'backbone=(dict\(.*\))', str(info.value))
        init = eval(setting)['init_cfg']
    backbone = XCiT('nano12', init_cfg=init)
    backbone.init_weights()
    key = 'blocks.11.attn.qkv.weight'
    assert torch.equal(backbone.state_dict()[key], weights[key])


def test_unwrap():
    plain = {'a': torch.zeros(1), 'module_b': torch.zeros(1)}
    wrapped = {f'_orig_mod.module.{key}': value for key, value in plain.items()}
    itself = {'epoch': 3, **plain}
    itself['model'] = itself
    for checkpoint in (plain, {'model_ema': {**wrapped, 'steps': 7}}, itself):
        assert unwrap(checkpoint) == plain


def test_load_whole_state_needs_all_weights(tmp_path):
    """Except counts of batches, which old files lack; surplus weights are ignored."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    state = {k: torch.full_like(x, 3) for k, x in model.state_dict().items() if 'tracked' not in k}
    load_whole_state(model, {**state, 'head': torch.zeros(2)})
    assert all((value == 3).all() for key, value in model.state_dict().items() if key in state)
    with pytest.raises(CheckpointMismatchError, match=r'(?s)does not fit.*0\.bias'):
        load_whole_state(model, {**state, '0.bias': torch.zeros(5)})
    for name in ('mine.py', 'last_checkpoint'):  # the work dir of a run
        (tmp_path / name).touch()
    torch.save({'state_dict': {**state, '0.bias': torch.zeros(5)}}, tmp_path / 'iter_1.pth')
    later = (tmp_path / 'iter_1.pth').stat().st_mtime + 1
    (tmp_path / 'later.py').touch()
    os.utime(tmp_path / 'later.py', (later, later))  # of another run, from here
    with pytest.raises(CheckpointMismatchError, match=r'The config of its run: .*mine\.py'):
        load_whole_state(model, load(str(tmp_path / 'iter_1.pth')))
    del state['0.bias']
    with pytest.raises(CheckpointMismatchError, match=r'Missing .* 1 of 7 weights: 0\.bias'):
        load_whole_state(model, state)


# of files of the XCiT authors' dense code, written with mmcv 1.x
META = dict(mmcv_version='1.3.0', CLASSES=('wall', 'building'), PALETTE=[[1, 2, 3], [4, 5, 6]])


def build(name):
    cfg = Config.fromfile(CONFIGS / f'xcit/{name}.py')
    init_default_scope(cfg.default_scope)
    return MODELS.build(cfg.model).eval()


def test_all_weights_of_a_whole_model_are_used():
    layout = 'whole__upernet_xcit_tiny_12_p8'
    model = build_meta(build, name='upernet_xcit_t12_p8_ade20k')
    converted = convert_whole_model({'state_dict': meta_state(layout)})['state_dict']
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
    """A file is made from our model: mmdet's heads have the same names since 2.x."""
    model = build('maskrcnn_xcit_t12_p16_3x_coco')
    theirs = {
        key.replace('neck.0.fpn', 'backbone.fpn').replace('neck.1.', 'neck.'): value + 1
        for key, value in model.state_dict().items()
    }
    assert {'backbone.fpn1.0.weight', 'neck.fpn_convs.0.conv.weight'} <= set(theirs)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    file = save(dict(meta=META, state_dict=theirs))
    load_checkpoint(model, file, map_location='cpu', strict=True)
    assert all(torch.equal(value, before[key] + 1) for key, value in model.state_dict().items())


def test_whole_file_is_refused_without_our_reader():
    """The backbone would drop the weights of the pyramid, which would stay random."""
    model = build_meta(build, name='semfpn_xcit_t12_p16_ade20k')
    with pytest.raises(CheckpointMismatchError, match=r"custom_imports = .*'mmbixt.registry'"):
        load_state_dict(model, meta_state('whole__sem_fpn_xcit_tiny_12_p16'), strict=False)
