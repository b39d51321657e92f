"""tools/export_onnx.py on small segmentors: what it writes, and what it refuses."""

import json
import sys
from pathlib import Path
from unittest.mock import MagicMock

import export_onnx
import pytest
import torch
from documents import shown
from helpers import only_in_zoo, python
from mmengine.config import Config
from onnxruntime import InferenceSession
from PIL import Image
from torch import nn

from mmbixt.attention import RoutingAttention
from mmbixt.sample.scenes import make_scene
from mmbixt.version import __version__

CLASSES = ['sky', 'tree', 'car']
PALETTE = [[120, 190, 255], [20, 120, 40], [0, 70, 200]]


@pytest.fixture
def files(project, tmp_path):
    """A config, a checkpoint with logits that are not all alike, and a file to be written."""
    config = (project / 'mine.py').read_text()
    wide = config.replace('scale=(64, 64)', 'scale=(256, 96), keep_ratio=True')
    (tmp_path / 'mine.py').write_text(wide)
    state = torch.load(project / 'mine.pth')['state_dict']
    nn.init.normal_(state['decode_head.conv_seg.weight'])
    meta = dict(dataset_meta=dict(classes=CLASSES, palette=PALETTE))
    torch.save(dict(meta=meta, state_dict=state), tmp_path / 'model.pth')
    return [str(tmp_path / name) for name in ('mine.py', 'model.pth', 'out.onnx')]


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, 'argv', ['export_onnx.py', *arguments])
    export_onnx.main()


@only_in_zoo
def test_file_agrees_with_the_model(files, monkeypatch, capsys):
    run(monkeypatch, *files, '--dynamic', '--logits')
    said = capsys.readouterr()
    assert said.out.count('largest difference') == sum(batch for batch, *_ in export_onnx.CHECKED)
    assert 'rewritten' in said.out
    session = InferenceSession(files[2])
    (given,), (returned,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.shape) == ('images', ['batch', 3, 'height', 'width'])
    assert (returned.name, returned.shape) == ('logits', ['batch', 3, 'height', 'width'])
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about['classes']) == CLASSES
    assert json.loads(about['palette']) == PALETTE
    assert (about['config'], about['mmbixt_version']) == ('mine', __version__)
    assert str(Path(export_onnx.__file__).parents[1]).encode() not in Path(files[2]).read_bytes()


def test_example_runs_without_torch(files, tmp_path, monkeypatch):
    """The program of the documents, with onnxruntime, NumPy and Pillow alone."""
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


def test_wrong_file_is_not_left(files, tmp_path, monkeypatch):
    monkeypatch.setattr(export_onnx.Exported, 'forward', lambda self, images: images.argmax(1))
    with pytest.raises(SystemExit, match='Nothing was written'):
        run(monkeypatch, *files)
    assert sorted(p.name for p in tmp_path.iterdir()) == ['mine.py', 'model.pth']


def test_what_it_cannot_export_is_an_error(tmp_path, monkeypatch, capsys):
    segmentor = dict(type='EncoderDecoder', data_preprocessor=dict())
    for words, scope, model in (
        ('is a MaskRCNN of mmdet', 'mmdet', dict(type='MaskRCNN')),
        ('whole images', 'mmseg', dict(segmentor, test_cfg=dict(mode='slide'))),
        ('images of 4 channels', 'mmseg', dict(segmentor, backbone=dict(in_channels=4))),
    ):
        with pytest.raises(SystemExit, match=words):
            export_onnx.check_config(Config(dict(default_scope=scope, model=model)), 'some.py')
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
