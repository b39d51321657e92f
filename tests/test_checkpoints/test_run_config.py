"""Settings of a run that its weights do not show."""

from unittest import mock

import pytest
from helpers import CONFIGS
from mmengine.config import Config
from mmengine.registry import DefaultScope

from mmbixt.checkpoints.run_config import _SECTIONS as SECTIONS
from mmbixt.checkpoints.run_config import read_config, warn_of_changes


def warnings(checkpoint, cfg):
    with mock.patch('mmbixt.checkpoints.run_config.print_log') as log:
        warn_of_changes(checkpoint, cfg)
    return ' '.join(call.args[0] for call in log.call_args_list)


def test_changes_are_named():
    cfg = Config.fromfile(CONFIGS / 'bisa_swin/semfpn_bisa_swin_t_ade20k.py')
    checkpoint = dict(meta=dict(cfg=cfg.pretty_text))
    assert warnings(checkpoint, cfg) == ''
    cfg.model.backbone.drop_path_rate = 0.9
    cfg.model.backbone.in_channels = 3  # the default
    cfg.model.decode_head.num_classes = 7  # the weights show it
    cfg.model.decode_head.loss_decode.loss_weight = 7
    cfg.model.data_preprocessor.size = (99, 99)
    assert warnings(checkpoint, cfg) == ''
    cfg.model.backbone.bisa_order = 'msa_misa'
    cfg.model.data_preprocessor.bgr_to_rgb = False
    cfg.model.decode_head.align_corners = True
    wrapped = dict(model=dict(type='SegTTAModel', module=cfg.model))
    for changed in (cfg, wrapped):
        text = warnings(checkpoint, changed)
        assert "model.backbone.bisa_order = 'parallel', now 'msa_misa'" in text
        assert 'model.data_preprocessor.bgr_to_rgb = True, now False' in text
        assert 'model.decode_head.align_corners = False, now True' in text
        assert text.count(', now ') == 3


def test_stock_parts_and_their_defaults():
    model = dict(backbone=dict(type='ResNet', depth=50))
    cfg = Config(dict(model=model, data_preprocessor=dict(mean=[9], to_rgb=True)))
    checkpoint = dict(meta=dict(cfg=cfg.pretty_text))
    cfg.model.backbone.update(in_channels=3, deep_stem=False)  # the defaults
    cfg.data_preprocessor.num_classes = 7
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        assert warnings(checkpoint, cfg) == ''
        cfg.data_preprocessor.to_rgb = False
        assert 'model.data_preprocessor.to_rgb = True, now False' in warnings(checkpoint, cfg)


@pytest.mark.parametrize('cfg', [None, 5, 'import os', 'model =', 'model = 3', 'model = dict(1)'])
def test_other_files_are_not_compared(cfg):
    meta = dict(cfg=cfg)
    assert warnings(dict(meta=meta), dict(model=dict(backbone=dict(type='XCiT')))) == ''


def test_text_is_not_run(tmp_path):
    file = tmp_path / 'made'
    assert read_config(f'model = open({str(file)!r}, "w")') == dict.fromkeys(SECTIONS)
    assert not file.exists()
    found = read_config("a = open\nmodel = dict({'e e': 1}, b=[1, (2, -3.5)], c={'d': None})")
    assert found['model'] == {'e e': 1, 'b': [1, [2, -3.5]], 'c': {'d': None}}
