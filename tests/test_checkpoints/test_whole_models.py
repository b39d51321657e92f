"""Whole models of the XCiT authors' dense code, in files of mmcv 1.x."""

import pytest
import torch
from helpers import CONFIGS, golden, image, official_parameters, official_state
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import load_checkpoint, load_state_dict
from test_checkpoints.layouts import meta_state

from mmbixt.checkpoints.loader import convert_whole_model, load
from mmbixt.checkpoints.state_dict import CheckpointMismatchError

LAYOUTS = {
    'whole__sem_fpn_xcit_tiny_12_p16': 'semfpn_xcit_t12_p16_ade20k',
    'whole__upernet_xcit_tiny_12_p8': 'upernet_xcit_t12_p8_ade20k',
}
META = dict(mmcv_version='1.3.0', CLASSES=('wall', 'building'), PALETTE=[[1, 2, 3], [4, 5, 6]])


def build(name):
    cfg = Config.fromfile(CONFIGS / f'xcit/{name}.py')
    init_default_scope(cfg.default_scope)
    return MODELS.build(cfg.model).eval()


@pytest.mark.parametrize('layout', LAYOUTS)
def test_every_weight_of_the_file_has_its_place(layout):
    state = meta_state(layout)
    with torch.device('meta'):
        model = build(LAYOUTS[layout])
    converted = convert_whole_model({'state_dict': state})['state_dict']
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


def test_detectors_are_converted_alike(save):
    """No layout of one is at hand, but mmdet's heads have kept their names since 2.x."""
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


def test_a_file_that_another_reader_has_read_is_refused():
    """Or the pyramid would stay random in silence: a model sees its backbone's keys dropped."""
    with torch.device('meta'):
        model = build('semfpn_xcit_t12_p16_ade20k')
    with pytest.raises(CheckpointMismatchError, match=r"custom_imports = .*'mmbixt.registry'"):
        load_state_dict(model, meta_state('whole__sem_fpn_xcit_tiny_12_p16'), strict=False)


ZERO = torch.zeros(1)
OURS = dict(state_dict={'backbone.pos_embeder.a': ZERO, 'neck.0.fpn1.a': ZERO})


@pytest.mark.parametrize('checkpoint', [OURS, dict(model={'blocks.0.norm1.weight': ZERO}), ZERO])
def test_our_own_and_other_files_stay_as_they_are(checkpoint):
    assert convert_whole_model(checkpoint) is checkpoint
