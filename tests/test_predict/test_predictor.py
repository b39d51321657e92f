"""Label maps of a small segmentor: as mmseg's, in tiles as whole, at all sizes."""

from copy import deepcopy
from functools import partialmethod

import cv2
import numpy as np
import onnx
import pytest
import torch
from mmengine.config import Config
from mmseg.apis import inference_model, init_model
from mmseg.models.decode_heads import FCNHead
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from onnx import TensorProto, helper
from torch import nn

from mmbixt.config import ConfigError
from mmbixt.predict import Predictor

CONFIG = """
default_scope = 'mmseg'
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor', mean=[120.0] * 3, std=[60.0] * 3, bgr_to_rgb=True
    ),
    backbone=dict(type='ResNetV1c', depth=18, stem_channels=8, base_channels=8, num_stages=1,
        strides=(1,), dilations=(1,), out_indices=(0,), norm_cfg=dict(type='BN')),
    decode_head=dict(type='FCNHead', in_channels=8, channels=8, num_convs=1, concat_input=False,
        num_classes=5, dropout_ratio=0, norm_cfg=dict(type='BN'), align_corners=False),
    test_cfg=dict(mode='whole'),
)
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(160, 128), keep_ratio=True),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
test_dataloader = dict(
    dataset=dict(
        type='BaseSegDataset',
        metainfo=dict(classes=list('abcde'), palette=[[i * 40] * 3 for i in range(5)]),
        data_prefix=dict(img_path='nowhere'),
        pipeline=test_pipeline,
    )
)
"""


@torch.no_grad()
def random_model(config):
    """The model of a config, whose labels differ from pixel to pixel."""
    torch.manual_seed(0)
    model = init_model(config, device='cpu')
    for part in model.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight)
    head = model.decode_head.conv_seg.weight
    head -= head.mean(1, keepdim=True)
    return model


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    """A config, a checkpoint whose receptive field is about 60 pixels, and a photo of noise."""
    folder = tmp_path_factory.mktemp('predict')
    (folder / 'config.py').write_text(CONFIG)
    model = random_model(str(folder / 'config.py'))
    torch.save(dict(meta={}, state_dict=model.state_dict()), folder / 'model.pth')
    noise = np.random.default_rng(0).integers(0, 255, (20, 30, 3), np.uint8)
    cv2.imwrite(str(folder / 'photo.png'), cv2.resize(noise, (407, 299)))
    return [str(folder / name) for name in ('config.py', 'model.pth', 'photo.png')]


SIZES = [  # options, what they mean, and the size
    ({}, dict(scale=(160, 128)), '160 x 118, as in evaluation; --scale 1 keeps its size'),
    (dict(scale=1.7), dict(scale_factor=1.7), '691 x 508, over four times the 160 x 118 of eval'),
    (dict(short_side=100), dict(scale=(10000, 100)), '136 x 100'),
]


@pytest.mark.parametrize(('options', 'resize', 'said'), SIZES)
def test_sizes_are_as_in_mmseg(files, capsys, options, resize, said):
    """Of a photo that is larger, or smaller, than the size at which it is predicted."""
    config, checkpoint, photo = files
    labels = Predictor(config, checkpoint, device='cpu', **options)(photo)
    config = Config.fromfile(config)
    config.test_pipeline[1] = dict(type='Resize', keep_ratio=True, **resize)
    expected = inference_model(init_model(config, checkpoint, 'cpu'), photo).pred_sem_seg.data[0]
    assert labels.shape == (299, 407)
    assert len(np.unique(labels)) > 2
    assert np.mean(labels == expected.numpy()) > 0.9999
    assert capsys.readouterr().out.count(f'407 x 299 is predicted at {said}') == 1


DEEP = dict(num_stages=4, strides=(1, 2, 2, 2), dilations=(1, 1, 1, 1))
HEADS = {
    'linear': dict(
        backbone=dict(**DEEP, out_indices=[3]),
        decode_head=dict(num_convs=0, channels=64, in_channels=64),
    ),
    'semantic FPN': dict(
        backbone=dict(**DEEP, out_indices=[0, 1, 2, 3]),
        neck=dict(type='mmseg.FPN', in_channels=[8, 16, 32, 64], out_channels=8, num_outs=4),
        decode_head=dict(
            _delete_=True,
            **dict(type='FPNHead', in_channels=[8] * 4, in_index=[0, 1, 2, 3], channels=8),
            **dict(feature_strides=[4, 8, 16, 32], num_classes=5, norm_cfg=dict(type='BN')),
        ),
    ),
}


@pytest.fixture(params=HEADS)
@torch.no_grad()
def padding(request, tmp_path):
    """A config whose data preprocessor pads, and a checkpoint."""
    config = Config.fromstring(CONFIG, '.py')
    config.merge_from_dict(dict(model=deepcopy(HEADS[request.param])))
    config.model.data_preprocessor.update(test_cfg=dict(size_divisor=32), pad_val=1)
    model = random_model(config)
    logits = model.decode_head(model.extract_feat(torch.randn(1, 3, 128, 160)))
    model.decode_head.conv_seg.bias -= logits.mean((0, 2, 3))  # several labels in each image
    torch.save(dict(meta={}, state_dict=model.state_dict()), tmp_path / 'model.pth')
    return config, str(tmp_path / 'model.pth')


@pytest.mark.parametrize('align_corners', [False, True])
@pytest.mark.parametrize('scale', [None, 1])
def test_padding_is_as_in_mmseg(padding, scale, align_corners):
    """Of sizes that the divisor does not divide."""
    config, checkpoint = padding
    config.model.decode_head.align_corners = align_corners
    predict = Predictor(config, checkpoint, scale=scale, device='cpu')
    if scale:
        config.test_pipeline[1] = dict(type='Resize', scale_factor=1.0)
    model = init_model(config, checkpoint, 'cpu')
    for size in ((97, 113), (100, 130), (65, 200), (96, 64)):
        photo = np.random.default_rng(0).integers(0, 255, (*size, 3), np.uint8)
        expected = inference_model(model, photo).pred_sem_seg.data[0].numpy()
        assert len(np.unique(expected)) > 1
        assert np.mean(predict(photo) == expected) > 0.9995


@pytest.mark.parametrize('padded', [None, dict(size_divisor=32), dict(size=(128, 128))])
@pytest.mark.parametrize('scale', [None, 1])
def test_windows_are_as_in_mmseg(padding, scale, padded):
    """Of images smaller than a window, and of strides that do not divide."""
    config, checkpoint = padding
    config.model.test_cfg = dict(mode='slide', crop_size=(64, 80), stride=(44, 52))
    config.model.data_preprocessor.test_cfg = padded
    options = dict(scale=scale, device='cpu')
    predict, other = (Predictor(config, checkpoint, **options, tile=x) for x in (None, 80))
    if scale:
        config.test_pipeline[1] = dict(type='Resize', scale_factor=1.0)
    model, equal = init_model(config, checkpoint, 'cpu'), []
    for size in ((64, 80), (30, 40), (50, 200), (200, 60), (97, 113), (152, 184)):
        photo = np.random.default_rng(0).integers(0, 255, (*size, 3), np.uint8)
        expected = inference_model(model, photo).pred_sem_seg.data[0].numpy()
        labels = predict(photo)
        assert np.mean(labels == expected) >= (1 if scale else 0.9999)  # resized logits are rounded
        equal.append(np.mean(other(photo) == expected))
    assert len(np.unique(expected)) > 1
    assert min(equal) < 0.95


def test_probabilities_that_are_not_known(files, monkeypatch):
    """Of heads that return no logits, as those that predict masks, and of labels."""
    own = partialmethod(BaseDecodeHead.predict_by_feat)
    monkeypatch.setattr(FCNHead, 'predict_by_feat', own, raising=False)
    predict = Predictor(*files[:2], device='cpu')
    assert len(np.unique(predict(files[2]))) > 2
    with pytest.raises(ConfigError, match='this file or head returns no logits'):
        predict.predict(files[2])


def test_probabilities_are_those_of_the_labels(files, tmp_path):
    """Also of one logit, where a label may have less than half."""
    config = Config.fromfile(files[0])
    config.model.decode_head.update(num_classes=2, out_channels=1, threshold=0.3)
    torch.save(dict(meta={}, state_dict=random_model(config).state_dict()), tmp_path / 'model.pth')
    config.test_dataloader.dataset.metainfo = dict(classes=['a', 'b'])
    labels, given = Predictor(config, tmp_path / 'model.pth', device='cpu').predict(files[2])
    model = init_model(config, str(tmp_path / 'model.pth'), 'cpu')
    expected = inference_model(model, files[2]).seg_logits.data[0].numpy()  # of class 1
    assert 0 < labels.mean() < 1
    assert np.mean(labels == (expected > 0.3)) > 0.9999
    expected = np.where(labels, expected, 1 - expected)
    assert expected[labels == 1].min() < 0.4
    assert np.abs(given - 255 * expected).max() < 0.6


def test_pixels_from_0_to_1(files):
    predict, photo = Predictor(*files[:2], device='cpu'), cv2.imread(files[2])
    with pytest.raises(ValueError, match='8 bits, 0 to 255, and not float32 from 0 to 1'):
        predict(photo / np.float32(255))
    assert np.mean(predict(photo.astype(np.float32)) == predict(photo)) > 0.99  # as resizing rounds


@pytest.mark.parametrize(('tile', 'share'), [(128, 0.9999), (150, 0.9999), (131, 0.97)])
def test_tiles_with_padding(files, tile, share):
    """Padded tiles give the labels of the padded whole; of 131, cells do not coincide."""
    config, photo = Config.fromfile(files[0]), files[2]
    config.model.data_preprocessor.test_cfg = dict(size_divisor=32)
    options = dict(scale=1, device='cpu')
    whole = Predictor(config, files[1], whole=True, **options)(photo)
    predict = Predictor(config, files[1], tile=tile, overlap=tile - 64 - tile % 2, **options)
    assert np.mean(predict(photo) == whole) > share


@pytest.mark.parametrize('size', [(299, 407), (100, 407), (129, 128)])
@pytest.mark.parametrize('options', [{}, dict(batch=3), dict(tile=160, overlap=80)])
def test_tiles_are_as_the_whole(files, options, size):
    config, checkpoint, _ = files
    image = np.random.default_rng(0).integers(0, 255, (*size, 3), np.uint8)
    whole = Predictor(config, checkpoint, scale=1, whole=True, device='cpu')
    options = dict(tile=128, overlap=64) | options
    tiled = Predictor(config, checkpoint, scale=1, device='cpu', **options)
    expected, actual = whole.predict(image), tiled.predict(image)
    assert len(np.unique(expected[0])) > 1
    for a, b in zip(expected, actual, strict=True):
        assert np.mean(a == b) > 0.9999


def test_labels_of_an_onnx_file(files, tmp_path):
    """Each tile has a vote; the file says which channel of a pixel is the highest."""
    node = helper.make_node('ArgMax', ['images'], ['labels'], axis=1, keepdims=0)
    images = helper.make_tensor_value_info('images', TensorProto.FLOAT, [1, 3, 96, 96])
    labels = helper.make_tensor_value_info('labels', TensorProto.INT64, [1, 96, 96])
    graph = helper.make_graph([node], 'graph', [images], [labels])
    opset = [helper.make_opsetid('', 17)]
    model = helper.make_model(graph, ir_version=10, opset_imports=opset)
    helper.set_model_props(model, dict(classes='["a", "b", "c"]'))
    onnx.save(model, tmp_path / 'model.onnx')
    predict, photo = Predictor(files[0], tmp_path / 'model.onnx', scale=1), cv2.imread(files[2])
    assert np.array_equal(predict(photo), photo.argmax(2))
    assert np.array_equal(predict(photo[:50, :60]), photo[:50, :60].argmax(2))
    with pytest.raises(ConfigError, match='this file or head returns no logits'):
        predict.predict(photo)
