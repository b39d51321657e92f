"""Label maps of a small segmentor: as mmseg's, in tiles as whole, at all sizes."""

import cv2
import numpy as np
import pytest
import torch
from mmseg.apis import inference_model, init_model
from torch import nn

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


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    """A config, a checkpoint whose receptive field is about 60 pixels, and a photo of noise."""
    folder = tmp_path_factory.mktemp('predict')
    (folder / 'config.py').write_text(CONFIG)
    torch.manual_seed(0)
    model = init_model(str(folder / 'config.py'), device='cpu')
    for part in model.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight)
    head = model.decode_head.conv_seg.weight.data
    head -= head.mean(1, keepdim=True)
    torch.save(dict(meta={}, state_dict=model.state_dict()), folder / 'model.pth')
    noise = np.random.default_rng(0).integers(0, 255, (20, 30, 3), np.uint8)
    cv2.imwrite(str(folder / 'photo.png'), cv2.resize(noise, (407, 299)))
    return [str(folder / name) for name in ('config.py', 'model.pth', 'photo.png')]


def test_default_is_mmseg(files, capsys):
    """Also of a photo that is larger than the size of the test pipeline."""
    config, checkpoint, photo = files
    labels = Predictor(config, checkpoint, device='cpu')(photo)
    expected = inference_model(init_model(config, checkpoint, 'cpu'), photo).pred_sem_seg.data[0]
    assert labels.shape == (299, 407)
    assert len(np.unique(labels)) > 2
    assert np.mean(labels == expected.numpy()) > 0.9999
    line = '407 x 299 is predicted at 160 x 118, as in evaluation; --scale 1 keeps its size'
    assert capsys.readouterr().out.count(line) == 1


@pytest.mark.parametrize('options', [{}, dict(batch=1), dict(tile=160, overlap=80)])
def test_tiles_are_as_the_whole(files, options):
    config, checkpoint, _ = files
    image = np.random.default_rng(0).integers(0, 255, (299, 407, 3), np.uint8)
    whole = Predictor(config, checkpoint, scale=1, whole=True, device='cpu')
    tiled = Predictor(
        config, checkpoint, scale=1, device='cpu', **dict(tile=128, overlap=64) | options
    )
    expected, actual = whole.predict(image), tiled.predict(image)
    assert len(np.unique(expected[0])) > 2
    for a, b in zip(expected, actual, strict=True):
        assert np.mean(a == b) > 0.9999


def test_other_stride_and_one_size(files):
    """Tiles whose cells do not coincide are added up at full size; padded tiles are as others."""
    config, checkpoint, photo = files
    whole = Predictor(config, checkpoint, scale=1, whole=True, device='cpu')(photo)
    odd = Predictor(config, checkpoint, scale=1, tile=131, overlap=66, device='cpu')
    assert np.mean(odd(photo) == whole) > 0.98  # tiles begin between two cells of the whole
    padded = Predictor(config, checkpoint, scale=1, tile=128, overlap=64, device='cpu')
    padded.network.tile = padded.tile
    labels = padded(photo)
    assert labels.shape == whole.shape
    assert np.mean(labels == whole) > 0.95  # all but the right and the lower border


@pytest.mark.gpu
def test_cuda_graph(files):
    config, checkpoint, photo = files
    predict = Predictor(config, checkpoint, scale=1, tile=128, overlap=64, device='cuda')
    in_graph = predict(photo)
    assert len(predict.network.graphs) == 1
    predict.network.has_graph = False
    assert np.mean(in_graph == predict(photo)) > 0.95  # padded tiles have one size in the graph
