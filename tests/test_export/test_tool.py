"""tools/export_onnx.py on small segmentors: what it writes, and what it refuses."""

import json
import re
import sys
from pathlib import Path

import export_onnx
import pytest
import torch
from documents import shown
from helpers import python
from onnxruntime import InferenceSession
from PIL import Image
from torch import nn

from mmbixt.predict import Predictor
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


@pytest.mark.zoo
def test_file_agrees_with_the_model(files, monkeypatch, capsys):
    run(monkeypatch, *files, '--dynamic', '--logits')
    said = capsys.readouterr().out
    differences = [float(x) for x in re.findall(r'largest difference (\S+)', said)]
    assert len(differences) == len(export_onnx.CHECKED)
    assert max(differences) < 1e-4
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


def test_prediction_in_tiles(files, tmp_path, monkeypatch):
    """By a file of logits of one size, also if the config predicts in windows."""
    slide = "model['test_cfg'] = dict(mode='slide', crop_size=(64, 64), stride=(48, 48))"
    with Path(files[0]).open('a') as file:
        file.write(f'\n{slide}\n')
    run(monkeypatch, *files, '--size', '96', '96', '--logits')
    photo = make_scene(1, 150, 200).image
    options = dict(scale=1, tile=96, overlap=24, device='cpu')
    expected, actual = (Predictor(files[0], x, **options)(photo) for x in files[1:])
    assert actual.shape == (150, 200)
    assert (actual == expected).mean() > 0.9


def test_a_file_that_differs_from_the_model_is_deleted(files, tmp_path, monkeypatch):
    monkeypatch.setattr(export_onnx.Exported, 'forward', lambda self, images: images.argmax(1))
    with pytest.raises(SystemExit, match=r'differ; .*out\.onnx was deleted'):
        run(monkeypatch, *files)
    assert sorted(p.name for p in tmp_path.iterdir()) == ['mine.py', 'model.pth']


@pytest.mark.parametrize('cells', [1, 2, 3, 6])
@torch.no_grad()
def test_rewritten_pooling_is_the_same(cells):
    for size in ((7, 12), (3, 5), (16, 16)):
        x = torch.randn(2, 4, *size)
        expected = nn.AdaptiveAvgPool2d(cells)(x)
        torch.testing.assert_close(export_onnx.Pooling(cells)(x), expected)
