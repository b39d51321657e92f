"""tools/export_onnx.py on small models: what it writes, and what it refuses."""

import json
import re
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from detectors import spread
from documents import shown
from helpers import CONFIGS, python
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from onnxruntime import InferenceSession
from PIL import Image
from torch import nn

from mmbixt import export
from mmbixt.export.detector import ExportedDetector
from mmbixt.predict import Predictor
from mmbixt.scenes.scene import make_scene
from mmbixt.version import __version__

CLASSES = ['sky', 'tree', 'car']
PALETTE = [[120, 190, 255], [20, 120, 40], [0, 70, 200]]
SMALL = 'dict(_delete_=True, embed_dims=16, num_heads=2, depth=4)'
MODELS_OF = dict(
    mask=f"""
_base_ = '{CONFIGS}/bixt/maskrcnn_bixt_ti_3x_coco.py'
adapter, fpn = _base_.model.neck
adapter.in_channels, fpn.in_channels = 16, [16] * 4
model = dict(
    backbone=dict(init_cfg=None, arch={SMALL}, out_indices=(0, 1, 2, 3)), neck=[adapter, fpn]
)
""",
    retina=f"""
_base_ = '{CONFIGS}/bisa_swin/retinanet_swin_t_1x_coco.py'
small = dict(_delete_=True, embed_dims=8, depths=(1, 1, 1, 1), num_heads=(1, 1, 2, 2))
model = dict(
    backbone=dict(init_cfg=None, arch=small), neck=dict(in_channels=[16, 32, 64])
)
""",
    classifier=f"""
_base_ = '{CONFIGS}/xcit/xcit_n12_p16_in1k.py'
model = dict(
    backbone=dict(arch={SMALL}, out_indices=(-1,)),
    neck=dict(_delete_=True, type='GlobalAveragePooling'),
    head=dict(in_channels=16),
)
""",
)
MODELS_OF['classifier of images in memory'] = f"""{MODELS_OF['classifier']}
data_preprocessor = dict(to_rgb=False)
test_dataloader = dict(dataset=dict(pipeline=_base_.test_pipeline[1:]))
"""
SIZE = 96, 128


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


@pytest.fixture
def run(within):
    return lambda *arguments, **options: within('export_onnx.py', *arguments, **options).said


def run_program(programs, folder):
    """A program of the documents, with onnxruntime, NumPy and Pillow alone; its output."""
    hide = "import sys; sys.modules.update(dict.fromkeys(['torch', 'mmbixt', 'mmengine', 'cv2']))"
    (code,) = programs
    return python('-c', f'{hide}\n{code}', cwd=folder)


# --- Segmentors -----------------------------------------------------------------------------------


@pytest.mark.zoo
def test_file_agrees_with_the_model(files, run):
    """At any size, padded and cropped as by the data preprocessor."""
    padding = "model['data_preprocessor'] = dict(test_cfg=dict(size_divisor=32))"
    with Path(files[0]).open('a') as file:
        file.write(f'\n{padding}\n')
    said = run(*files, '--dynamic', '--logits')
    differences = [float(x) for x in re.findall(r'largest difference (\S+)', said)]
    assert len(differences) == len(export.CHECKED)
    assert max(differences) < 1e-4
    session = InferenceSession(files[2])
    (given,), (returned,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.shape) == ('images', ['batch', 3, 'height', 'width'])
    assert (returned.name, returned.shape) == ('logits', ['batch', 3, 'height', 'width'])
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about['classes']) == CLASSES
    assert json.loads(about['palette']) == PALETTE
    assert (about['config'], about['mmbixt_version']) == ('mine', __version__)
    assert str(Path(export.__file__).parents[2]).encode() not in Path(files[2]).read_bytes()
    predict = [Predictor(files[0], x, scale=1, device='cpu') for x in files[1:]]
    for size in ((97, 113), (100, 130), (65, 200)):
        expected, actual = (x(make_scene(1, *size).image) for x in predict)
        assert (actual == expected).mean() > 0.999


def test_segmentor_without_torch(files, tmp_path, run):
    run(*files, '--size', '96', '128')
    (tmp_path / 'out.onnx').rename(tmp_path / 'OUT.onnx')
    Image.fromarray(make_scene(1, 192, 256).image).save(tmp_path / 'PHOTO.jpg')
    assert run_program(shown('onnx'), tmp_path).startswith('(1, 96, 128) {')
    with Image.open(tmp_path / 'labels.png') as picture:
        assert picture.size == (256, 192)
        assert {colour for _, colour in picture.getcolors()} <= {*map(tuple, PALETTE)}


def test_a_file_that_differs_from_the_model_is_not_written(files, tmp_path, run, monkeypatch):
    monkeypatch.setattr(export.ExportedSegmentor, 'forward', lambda self, images: images.argmax(1))
    (tmp_path / 'out.onnx').write_text('an earlier one')
    assert re.search(r'differ; .*out\.onnx was not written', run(*files, fails=True))
    assert sorted(p.name for p in tmp_path.iterdir()) == ['mine.py', 'model.pth', 'out.onnx']
    assert (tmp_path / 'out.onnx').read_text() == 'an earlier one'


# --- Detectors and classifiers --------------------------------------------------------------------


def write_model(kind, folder):
    """A model, and the arguments of the tool for it."""
    paths = [folder / name for name in ('mine.py', 'model.pth', 'OUT.onnx')]
    paths[0].write_text(MODELS_OF[kind])
    config = Config.fromfile(paths[0])
    init_default_scope(config.default_scope)
    torch.manual_seed(0)
    if 'data_preprocessor' in config:
        config.model.data_preprocessor = config.data_preprocessor
    model = revert_sync_batchnorm(MODELS.build(config.model)).eval()
    if 'classifier' not in kind:
        spread(model, lambda: ExportedDetector(model, config)(export.smooth_images(1, *SIZE)))
    torch.save(dict(state_dict=model.state_dict()), paths[1])
    return model, [*map(str, paths)]


def save_photo(folder):
    """A scene of SIZE without loss; its pixels in mmdet's order."""
    scene = make_scene(2, *SIZE).image
    Image.fromarray(scene).save(folder / 'PHOTO.jpg', 'PNG')
    return torch.from_numpy(scene[..., ::-1].copy()).permute(2, 0, 1).float()


@pytest.mark.zoo
def test_mask_rcnn(tmp_path, run):
    """And the program of the documents, for a photo of the size of the file, against mmdet."""
    model, paths = write_model('mask', tmp_path)
    assert run(*paths, '--size', *SIZE).count('100 of 100 detections agree') == 2
    image = save_photo(tmp_path)
    said = run_program(shown('onnx detector'), tmp_path).splitlines()
    info = dict(ori_shape=SIZE, img_shape=SIZE, scale_factor=(1.0, 1.0))
    data = dict(inputs=[image], data_samples=[DetDataSample(metainfo=info)])
    found = model.test_step(data)[0].pred_instances
    sure = found[found.scores > 0.3]
    assert len(said) == len(sure) > 10
    names = InferenceSession(paths[2]).get_modelmeta().custom_metadata_map['classes']
    for line, label, score in zip(said, sure.labels, sure.scores, strict=True):
        name = json.loads(names)[label]
        assert line.startswith(f'{name} ')
        printed = float(line.removeprefix(name).split()[0])  # rounded to 0.001
        assert abs(printed - float(score)) < 0.0015
    objects = np.zeros(SIZE, np.uint8)
    for i, mask in enumerate(sure.masks.numpy()):
        objects[mask & (objects == 0)] = i + 1
    with Image.open(tmp_path / 'objects.png') as picture:
        assert (np.asarray(picture) == objects).mean() > 0.95


@pytest.mark.zoo
def test_retinanet_in_a_photo(tmp_path, run):
    _, paths = write_model('retina', tmp_path)
    save_photo(tmp_path)
    said = run(*paths, '--size', *SIZE, '--photo', tmp_path / 'PHOTO.jpg')
    assert said.count('100 of 100 detections agree') == 1
    outputs = InferenceSession(paths[2]).get_outputs()
    assert {x.name: x.shape for x in outputs} == dict(boxes=[100, 4], scores=[100], labels=[100])


@pytest.mark.zoo
@pytest.mark.parametrize('kind', [kind for kind in MODELS_OF if 'classifier' in kind])
def test_classifier(tmp_path, run, kind):
    """And the program of the documents, for a photo that becomes one of the size of the file."""
    model, paths = write_model(kind, tmp_path)
    assert 'largest difference' in run(*paths, '--size', '112', '112')
    pixels = cv2.resize(make_scene(2).image, (256, 256))
    Image.fromarray(pixels).save(tmp_path / 'PHOTO.jpg', 'PNG')
    centre = torch.from_numpy(pixels[72:184, 72:184, ::-1].copy()).permute(2, 0, 1)[None].float()
    given = centre.flip(1) if 'memory' in kind else centre  # CIFAR's images are RGB
    with torch.no_grad():
        [sample] = model.predict(model.data_preprocessor(dict(inputs=given))['inputs'])
    score = float(run_program(shown('onnx classifier'), tmp_path).split()[-1])
    assert score == pytest.approx(float(sample.pred_score.max()), rel=1e-3)
    session = InferenceSession(paths[2])
    scores = session.run(None, dict(images=centre.expand(3, -1, -1, -1).numpy()))[0]
    np.testing.assert_allclose(scores[2], sample.pred_score, rtol=1e-3)
