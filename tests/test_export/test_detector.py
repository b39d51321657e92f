"""Two implementations of detectors agree: mmdet's, and ours in torch and torchvision."""

from functools import partial

import pytest
import torch
from detectors import SIZE, build_detector
from helpers import assert_close, others_in_zoo
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope

from mmbixt.config import config_files, read_config
from mmbixt.export import smooth_images
from mmbixt.export.detector import ExportedDetector, predict, roi_features

HERE = 'maskrcnn_xcit_t12_p16_3x_coco', 'retinanet_biformer_t_1x_coco'
NAMES = [
    *HERE,
    'maskrcnn_bixt_ti_3x_coco',
    'maskrcnn_biformer_t_1x_coco',
    'maskrcnn_bisa_swin_t_1x_coco',
    'retinanet_swin_t_1x_coco',
]
DETECTORS = [x for x in config_files() if x.startswith(('maskrcnn', 'retinanet'))]


def check(model, config):
    """The same boxes, scores, labels and masks of two images; their number."""
    detector, counts = ExportedDetector(model, config), []
    for images in (smooth_images(1, *SIZE), 255 * torch.rand(1, 3, *SIZE)):
        with torch.no_grad():
            actual, expected = detector(images), predict(model, images)
        assert len(actual) == len(expected) == len(detector.outputs)
        n = len(expected[1])
        assert [len(x) for x in actual] == [100] * len(actual)
        assert not actual[1][n:].any()
        assert all(x.isfinite().all() for x in actual)
        for ours, theirs in zip(actual[:3], expected[:3], strict=True):
            assert torch.equal(ours[:n], theirs)
        assert_close([x[:n] for x in actual[3:]], expected[3:], 1e-5)
        counts.append(n)
    return min(counts), len({*expected[2].tolist()})


@pytest.mark.parametrize('name', others_in_zoo(NAMES, HERE[1:]))
def test_inference(name):
    """Of as many objects as there are places, of fewer, and of none."""
    model, config = build_detector(name)
    count, labels = check(model, config)
    assert count == 100
    assert labels > 10
    limit(model, float(predict(model, smooth_images(1, *SIZE))[1][50]))
    assert 0 < check(model, config)[0] < 100
    limit(model, 1.0)
    with torch.no_grad():
        outputs = ExportedDetector(model, config)(smooth_images(1, *SIZE))
    assert not outputs[1].any()
    assert all(x.isfinite().all() for x in outputs)


def limit(model, score):
    """Let a detector return boxes with larger scores alone."""
    head = model.roi_head if 'rcnn' in model.test_cfg else model.bbox_head
    for options in (model.test_cfg.get('rcnn', model.test_cfg), head.test_cfg):
        options.score_thr = score


@pytest.mark.parametrize(
    'options',
    [
        {'bbox_head.reg_class_agnostic': True, 'mask_head.class_agnostic': True},
        {'mask_head': None, 'mask_roi_extractor': None},
    ],
    ids=['heads of all classes', 'no masks'],
)
@pytest.mark.zoo
def test_other_heads(options):
    options = {f'model.roi_head.{key}': value for key, value in options.items()}
    if None in options.values():
        options['model.type'] = 'FasterRCNN'
    assert check(*build_detector(HERE[0], **options))[0] == 100


@pytest.mark.parametrize('name', others_in_zoo(DETECTORS, HERE))
def test_features_of_the_neck_and_of_boxes(name):
    """mmcv's RoIAlign, which reads memory in the order of dimensions, and torchvision's."""
    config = read_config(name)
    init_default_scope('mmdet')
    config.model.backbone.init_cfg = None
    model = revert_sync_batchnorm(MODELS.build(config.model))
    model.train()
    maps = [x.detach() for x in model.extract_feat(torch.randn(1, 3, 96, 128))]
    assert all(x.stride() == torch.empty(x.shape).stride() for x in maps)
    if name.startswith('retinanet'):
        return
    corners = torch.rand(2, 50, 2) * torch.tensor([128, 96])
    boxes = torch.cat([corners.amin(0), corners.amax(0)], 1)
    rois = torch.cat([torch.zeros(50, 1), boxes], 1)
    for extractor in (model.roi_head.bbox_roi_extractor, model.roi_head.mask_roi_extractor):
        theirs = with_gradients(partial(extractor, rois=rois), maps[:4])
        ours = with_gradients(partial(roi_features, extractor, boxes=boxes), maps[:4])
        assert_close(theirs, ours, 1e-5)


def with_gradients(function, maps):
    """Outputs, and gradients with respect to the feature maps."""
    maps = [x.clone().requires_grad_() for x in maps]
    features = function(maps)
    features.sin().sum().backward()
    return [features.detach(), *(x.grad for x in maps)]
