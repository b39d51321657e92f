"""tools/export_onnx.py on small segmentors: what it writes, and what it refuses."""

import json
import sys
from pathlib import Path
from unittest.mock import MagicMock

import export_onnx
import pytest
import torch
from documents import shown
from helpers import CONFIGS, only_in_zoo, python
from mmengine.config import Config
from onnxruntime import InferenceSession
from PIL import Image
from torch import nn

from mmbixt.layers import RoutingAttention
from mmbixt.sample.scenes import make_scene
from mmbixt.version import __version__

LOSS = dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0, avg_non_ignore=True)
HEAD = dict(num_classes=5, align_corners=False, loss_decode=LOSS)
XCIT = dict(
    type='mmbixt.XCiT',
    arch=dict(embed_dims=16, num_heads=2, depth=4),
    out_indices=(0, 1, 2, 3),
)
LEVELS = dict(in_channels=[16] * 4, in_index=[0, 1, 2, 3], norm_cfg=dict(type='BN'), channels=16)
SMALLEST = dict(type='mmbixt.XCiT', arch=dict(embed_dims=16, num_heads=2, depth=1))
CLASSES = ['sky', 'tree', 'road', 'car', 'boat']
PALETTE = [[120, 190, 255], [20, 120, 40], [110, 110, 120], [0, 70, 200], [120, 0, 120]]
RESIZE = dict(type='Resize', scale=(256, 96), keep_ratio=True)
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
    dataset = dict(type='ADE20KDataset', pipeline=[dict(type='LoadImageFromFile'), RESIZE])
    config = Config(
        dict(
            default_scope='mmseg',
            model={**model, **options},
            test_dataloader=dict(dataset=dataset),
        )
    )
    config.dump(folder / 'config.py')
    export_onnx.init_default_scope('mmseg')
    from mmseg.registry import MODELS

    network = MODELS.build(config.model)
    nn.init.normal_(network.decode_head.conv_seg.weight)
    meta = dict(dataset_meta=dict(classes=CLASSES, palette=PALETTE))
    torch.save(dict(meta=meta, state_dict=network.state_dict()), folder / 'model.pth')
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
    said = capsys.readouterr()
    assert said.out.count('largest difference') == sum(batch for batch, *_ in export_onnx.CHECKED)
    assert ('rewritten' in said.out) == (parts is SEMFPN)
    phases = [line.split()[0] for line in said.err.splitlines()]
    assert [word for word in phases if word in ('building', 'exporting', 'checking:')] == phases

    session = InferenceSession(files[2])
    (given,), (returned,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.shape) == ('images', ['batch', 3, 'height', 'width'])
    assert (returned.name, returned.shape) == ('logits', ['batch', 5, 'height', 'width'])
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about['classes']) == CLASSES
    assert json.loads(about['palette']) == PALETTE
    assert (about['config'], about['mmbixt_version']) == ('config', __version__)
    assert str(Path(export_onnx.__file__).parents[1]).encode() not in Path(files[2]).read_bytes()


def test_example_runs_without_torch(tmp_path, monkeypatch):
    """The program of the documents, with onnxruntime, NumPy and Pillow alone."""
    files = write_files(tmp_path, LINEAR)
    run(monkeypatch, *files, '--size', '96', '128')
    (tmp_path / 'out.onnx').rename(tmp_path / 'OUT.onnx')
    Image.fromarray(make_scene(1, 192, 256).image).save(tmp_path / 'PHOTO.jpg')
    hide = "import sys; sys.modules.update(dict.fromkeys(['torch', 'mmbixt', 'mmengine', 'cv2']))"
    (code,) = shown('onnx')
    said = python('-c', f'{hide}\n{code}', cwd=tmp_path)
    assert said.startswith('(1, 96, 128) {')
    with Image.open(tmp_path / 'labels.png') as picture:
        assert picture.size == (256, 192)
        assert {colour for _, colour in picture.getcolors()} <= {*map(tuple, PALETTE)}


def test_names_of_classes_are_those_of_the_checkpoint_or_of_the_config():
    config = Config.fromfile(CONFIGS / 'xcit/semfpn_xcit_t12_p16_ade20k.py')
    found = export_onnx.about(config, 'some/name.py', {})
    assert json.loads(found['classes'])[:2] == ['wall', 'building']
    assert json.loads(found['resize'])[0] == dict(type='Resize', scale=[2048, 512], keep_ratio=True)
    config.model.decode_head.num_classes = 5
    assert 'classes' not in export_onnx.about(config, 'some/name.py', {})
    meta = dict(dataset_meta=dict(classes=tuple(CLASSES), palette=PALETTE))
    found = export_onnx.about(config, 'some/name.py', dict(meta=meta))
    assert json.loads(found['classes']) == CLASSES


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
        ('images of 4 channels', dict(default_scope='mmseg', model=dict(
            type='EncoderDecoder', data_preprocessor=dict(), backbone=dict(in_channels=4)))),
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
