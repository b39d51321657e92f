"""The family in docs/adding_a_backbone.md, one file, has all that the others have."""

import pytest
import timm
import torch
from documents import shown
from helpers import CONFIGS, assert_close, image, python
from mmengine.optim import build_optim_wrapper
from mmengine.registry import init_default_scope
from test_backbones.test_export import DYNAMIC, in_onnxruntime
from torch.distributed.fsdp import FSDPModule

from mmbixt.backbones import XCiT
from mmbixt.checkpoints.errors import CheckpointMismatchError
from mmbixt.checkpoints.sources import Published
from mmbixt.classification import classifier_config
from mmbixt.engine.fsdp import shard
from mmbixt.registry import MODELS
from mmbixt.timm import register

CONFIG = f"""
_base_ = '{CONFIGS}/xcit/upernet_xcit_t12_p16_ade20k.py'
custom_imports = dict(imports=['efficient'])
model = dict(
    backbone=dict(_delete_=True, type='Efficient'),
    neck=dict(type='mmbixt.FeaturePyramidAdapter', in_channels=64, in_strides=16),
    decode_head=dict(in_channels=[64] * 4),
    auxiliary_head=dict(in_channels=64),
)
"""


@pytest.fixture(scope='module')
def family():
    names = {'__name__': 'efficient'}
    exec(shown('family')[0], names)
    register(Published('efficient_tiny', dict(type='Efficient', arch='tiny')))
    return names['Efficient']


@pytest.mark.zoo
def test_a_config_trains_it(tmp_path):
    (tmp_path / 'efficient.py').write_text(shown('family')[0])
    (tmp_path / 'own.py').write_text(CONFIG)
    options = 'own.py', '--sample', '--fast-dev-run'
    said = python(CONFIGS.parent / 'tools/train.py', *options, cwd=tmp_path, PYTHONPATH='.')
    assert 'mIoU' in said


def test_layers_are_frozen_checkpointed_and_have_rates(family):
    plain, again, frozen = family(), family(with_cp=True), family(frozen_stages=2)
    again.load_state_dict(plain.state_dict())
    for model in (plain, again):
        sum(y.square().mean() for y in model(image(1, 64, 48))).backward()
    for one, other in zip(plain.parameters(), again.parameters(), strict=True):
        assert_close(one.grad, other.grad)
    trained = {name for name, x in frozen.named_parameters() if x.requires_grad}
    assert {name.split('.')[1] for name in trained} == {'2', '3', '4', '5'}
    wrapper = dict(optimizer=dict(type='SGD', lr=1.0), paramwise_cfg=dict(decay_rate=0.5))
    wrapper['constructor'] = 'mmbixt.FewGroupsConstructor'
    groups = build_optim_wrapper(plain, wrapper).optimizer.param_groups
    assert {group['lr'] for group in groups} == {0.5**n for n in range(1, 8)}


def test_units_of_fsdp_are_its_layers(family, tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / 'store'), 1)
    torch.distributed.init_process_group('gloo', store=store, rank=0, world_size=1)
    try:
        units = [x for x in shard(family()).modules() if isinstance(x, FSDPModule)]
    finally:
        torch.distributed.destroy_process_group()
    assert len(units) == 1 + 6


@pytest.mark.zoo
@torch.no_grad()
def test_its_onnx_file_takes_other_sizes(family, tmp_path):
    backbone = family().eval()
    program = torch.export.export(backbone, (image(2, 64, 96),), dynamic_shapes=DYNAMIC)
    run = in_onnxruntime(program, tmp_path / 'efficient.onnx')
    assert_close(run(image(1, 80, 50)), backbone(image(1, 80, 50)))


def test_its_classifier_has_a_neck(family):
    init_default_scope('mmpretrain')
    config = classifier_config(dict(type='Efficient'), num_classes=5)
    assert config['neck'] == dict(type='mmbixt.MeanAndNormNeck', in_channels=64)
    assert MODELS.build(config)(image(2, 64, 64)).shape == (2, 5)


def test_timm_has_it(family, tmp_path):
    model = timm.create_model('efficient_tiny', num_classes=5).eval()
    torch.save({'model': model.state_dict()}, tmp_path / 'file.pth')
    overlay = dict(file=str(tmp_path / 'file.pth'), num_classes=5)
    options = dict(pretrained=True, pretrained_cfg_overlay=overlay, num_classes=5)
    again = timm.create_model('efficient_tiny', **options).eval()
    x = image(1, 64, 64)
    assert torch.equal(again(x), model(x))
    for name, strides in (('efficient_tiny', [16] * 4), ('efficient_tiny_pyramid', [4, 8, 16, 32])):
        net = timm.create_model(name, features_only=True)
        assert net.feature_info.reduction() == strides
        maps = net(x)
        assert [y.shape[-1] for y in maps] == [64 // stride for stride in strides]
        sum(y.sum() for y in maps).backward()
        assert all(p.grad is not None for p in net.parameters())


def test_files_load_whole_or_not_at_all(family):
    state = family().state_dict()
    message = r'(?s)fit mmbixt\.Efficient.*Missing in the file: 1 of'
    with pytest.raises(CheckpointMismatchError, match=message):
        family().load_state_dict(dict(list(state.items())[1:]), strict=False)
    with pytest.raises(CheckpointMismatchError, match='the file seems to be of a Efficient'):
        XCiT('nano12').load_state_dict(state, strict=False)
