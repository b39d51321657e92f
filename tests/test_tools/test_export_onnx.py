"""tools/export_onnx.py on small segmentors: what it writes, and what it refuses."""

import sys
from pathlib import Path
from unittest.mock import MagicMock

import export_onnx
import pytest
import torch
from documents import shown
from helpers import only_in_zoo
from mmengine.config import Config
from torch import nn

from mmbixt.layers import RoutingAttention

LOSS = dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0, avg_non_ignore=True)
HEAD = dict(num_classes=5, align_corners=False, loss_decode=LOSS)
XCIT = dict(
    type='mmbixt.XCiT',
    arch=dict(embed_dims=16, num_heads=2, depth=4),
    out_indices=(0, 1, 2, 3),
)
LEVELS = dict(in_channels=[16] * 4, in_index=[0, 1, 2, 3], norm_cfg=dict(type='BN'), channels=16)
SMALLEST = dict(type='mmbixt.XCiT', arch=dict(embed_dims=16, num_heads=2, depth=1))
LINEAR = dict(
    backbone=SMALLEST, decode_head=dict(type='mmbixt.LinearTokenHead', in_channels=16, **HEAD)
)
SEMFPN = dict(
    backbone=XCIT,
    neck=dict(
        type='mmbixt.FeaturePyramidAdapter',
        in_channels=[16] * 4,
        in_strides=16,
        out_strides=(4, 8, 16, 32),
    ),
    decode_head=dict(type='FPNHead', feature_strides=[4, 8, 16, 32], **LEVELS, **HEAD),
)


def write_files(folder, parts, **options):
    """A config, and a checkpoint with logits that are not all alike."""
    preprocessor = dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        size=(64, 64),
        test_cfg=dict(size_divisor=32),
    )
    whole = dict(test_cfg=dict(mode='whole'))
    model = dict(type='EncoderDecoder', data_preprocessor=preprocessor, **whole, **parts)
    config = Config(dict(default_scope='mmseg', model={**model, **options}))
    config.dump(folder / 'config.py')
    export_onnx.init_default_scope('mmseg')
    from mmseg.registry import MODELS

    network = MODELS.build(config.model)
    nn.init.normal_(network.decode_head.conv_seg.weight)
    torch.save(dict(state_dict=network.state_dict()), folder / 'model.pth')
    return [str(folder / name) for name in ('config.py', 'model.pth', 'out.onnx')]


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, 'argv', ['export_onnx.py', *arguments])
    export_onnx.main()


@pytest.mark.parametrize(
    'parts', [LINEAR, pytest.param(SEMFPN, marks=only_in_zoo)], ids=['linear', 'semfpn']
)
def test_file_agrees_with_the_model(parts, tmp_path, monkeypatch, capsys):
    files = write_files(tmp_path, parts)
    run(monkeypatch, *files, '--dynamic', '--logits')
    said = capsys.readouterr().out
    assert said.count('largest difference') == sum(batch for batch, *_ in export_onnx.CHECKED)
    assert ('rewritten' in said) == (parts is SEMFPN)
    assert Path(files[2]).exists()
    (tmp_path / 'out.onnx').rename(tmp_path / 'OUT.onnx')
    monkeypatch.chdir(tmp_path)
    exec(shown('onnx')[0])
    assert capsys.readouterr().out.strip().endswith('480, 640)')


def test_wrong_file_is_not_left(tmp_path, monkeypatch):
    files = write_files(tmp_path, LINEAR)
    monkeypatch.setattr(export_onnx.Exported, 'forward', lambda self, images: images.argmax(1))
    with pytest.raises(SystemExit, match='Nothing was written'):
        run(monkeypatch, *files)
    assert sorted(p.name for p in tmp_path.iterdir()) == ['config.py', 'model.pth']


def test_what_it_cannot_export_is_an_error(tmp_path, monkeypatch, capsys):
    cases = [
        ('is a MaskRCNN of mmdet', dict(default_scope='mmdet', model=dict(type='MaskRCNN'))),
        ('whole images', dict(default_scope='mmseg', model=dict(
            type='EncoderDecoder', test_cfg=dict(mode='slide'), data_preprocessor=dict()))),
    ]  # fmt: skip
    for words, config in cases:
        with pytest.raises(SystemExit, match=words):
            export_onnx.check_config(Config(config), 'some.py')
    with pytest.raises(SystemExit, match='2'):
        run(monkeypatch, 'c.py', str(tmp_path / 'no.pth'), str(tmp_path / 'a.onnx'))
    assert 'there is no such checkpoint' in capsys.readouterr().err


@torch.no_grad()
def test_other_route_is_told_from_an_error(monkeypatch):
    """A file that differs for the second of two images, whose routing gap is the smaller one."""
    layer = RoutingAttention(16, 2, topk=2, num_regions=2)
    x = torch.randn(2, 8, 8, 16)
    _, regions = layer.routes(x)
    queries, keys = layer.qkv(regions.cut(x))[..., :32].mean(2).chunk(2, -1)
    scores = (queries @ keys.transpose(1, 2)).sort(-1, descending=True).values
    gap = (scores[..., 1] - scores[..., 2]).amin(1) / scores.abs().amax((1, 2))
    torch.testing.assert_close(layer.routing_gap(x), gap)

    expected = torch.rand(2, 3, 8, 8)
    other = expected.clone()
    other[1] = 1 - other[1]
    monkeypatch.setattr(export_onnx, 'predict', lambda model, images: model(x) is None or expected)
    session = MagicMock(run=lambda *_: [other.numpy()])
    first, second = export_onnx.compare(session, layer, torch.rand(2, 3, 8, 8), True)
    assert (first.is_right, second.is_right) == (True, False)
    assert second.gap == pytest.approx(gap[1].item(), rel=1e-4)


@only_in_zoo
def test_example_of_a_backbone():
    names = {}
    exec(shown('export')[0], names)
    assert [tuple(x.shape[2:]) for x in names['maps']] == [(38, 32)] * 4


@pytest.mark.parametrize('cells', [1, 2, 3, 6])
@torch.no_grad()
def test_rewritten_pooling_is_the_same(cells):
    for size in ((7, 12), (3, 5), (16, 16)):
        x = torch.randn(2, 4, *size)
        expected = nn.AdaptiveAvgPool2d(cells)(x)
        torch.testing.assert_close(export_onnx.Pooling(cells)(x), expected)
