"""mmbixt.SanityHook: mistakes that are found before the first step."""

import re
from types import SimpleNamespace

import pytest
import torch
from helpers import CONFIGS
from mmengine.config import Config
from mmengine.optim import CosineAnnealingLR, PolyLR
from mmengine.registry import DATASETS, MODELS, init_default_scope
from mmengine.runner import Runner
from running import fresh_mmengine
from samples import CLASSES, detection, edit_coco, segmentation
from torch import nn
from variants import BIXT, VARIANTS

from mmbixt.check.mistakes import dataset_problems, head_problems, schedule_problems
from mmbixt.check.sanity import range_problems, stride_problems
from mmbixt.config import ConfigError, read_config

INFINITE, ONCE = (
    dict(sampler=dict(type=kind, shuffle=False), num_workers=0, batch_size=2)
    for kind in ('InfiniteSampler', 'DefaultSampler')
)


def segmentor(root, **changes):
    """Two iterations with a small XCiT on the four images of ``samples``."""
    cfg = Config.fromfile(CONFIGS / '_base_/mmseg_runtime.py')
    data = segmentation(root)
    cfg.update(
        model=dict(
            type='EncoderDecoder',
            data_preprocessor=dict(type='SegDataPreProcessor', size=(32, 32)),
            backbone=VARIANTS['xcit'],
            decode_head=dict(type='mmbixt.LinearTokenHead', in_channels=16, num_classes=3),
            test_cfg=dict(mode='whole'),
        ),
        train_dataloader=dict(INFINITE, dataset=data),
        val_dataloader=dict(ONCE, dataset=data),
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=2, val_interval=2),
        val_cfg=dict(),
        val_evaluator=dict(type='IoUMetric'),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
        work_dir=str(root / 'run'),
        randomness=dict(seed=0),
    )
    cfg.merge_from_dict(changes)
    return cfg


def train(cfg):
    """The losses of a training."""
    with fresh_mmengine():
        runner = Runner.from_cfg(cfg)
        runner.train()
        return runner.message_hub.get_scalar('train/loss').data[0].tolist()


@pytest.mark.parametrize(
    ('setting', 'value', 'message'),
    [
        ('model.decode_head.num_classes', 4, 'but train_dataloader has 3 classes'),
        ('val_dataloader.dataset.metainfo.classes', CLASSES[::-1], "number 0 is 'car', not 'sky'"),
        ('default_hooks.checkpoint.save_best', 'mIoUs', 'val_evaluator does not report'),
    ],
)
def test_mistakes_are_named_before_the_first_step(root, setting, value, message):
    with pytest.raises(ConfigError, match=message):
        train(segmentor(root, **{setting: value}))
    assert not [*(root / 'run').glob('*.pth')]


def test_losses_are_those_without_the_two_batches_and_no_counts_are_written(root):
    metric = dict(type='mmbixt.BoundaryIoUMetric', sums_file=str(root / 'sums.npz'))
    changes = {'val_evaluator': metric, 'train_cfg.val_begin': 9}
    changes['default_hooks.checkpoint.save_best'] = None
    with_hook = train(segmentor(root, **changes))
    assert len(with_hook) == 2
    assert not (root / 'sums.npz').exists()
    assert train(segmentor(root, **changes, **{'default_hooks.sanity.batches': 0})) == with_hook


def detector(root, strides):
    """RetinaNet on a small BiXT, whose maps have the strides 8 to 128."""
    cfg = Config.fromfile(CONFIGS / '_base_/mmdet_runtime.py')
    model = Config.fromfile(CONFIGS / 'bisa_swin/retinanet_swin_t_1x_coco.py').model
    adapter = dict(type='mmbixt.FeaturePyramidAdapter', in_channels=16, in_strides=16)
    adapter |= dict(out_strides=(8, 16))
    model.backbone = dict(VARIANTS['bixt'], out_indices=(0, 1))
    model.neck = [adapter, dict(type='FPN', in_channels=[16] * 2, out_channels=16, num_outs=5)]
    model.bbox_head.update(num_classes=3, in_channels=16, feat_channels=16, stacked_convs=1)
    model.bbox_head.anchor_generator.strides = strides
    data = dict(dataset=detection(root))
    cfg.update(
        model=model,
        train_dataloader=INFINITE | data,
        val_dataloader=ONCE | data,
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=1),
        val_cfg=dict(),
        val_evaluator=dict(type='CocoMetric', ann_file=f'{root}/coco.json'),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.001)),
        work_dir=str(root / 'run'),
    )
    return cfg


def test_strides_of_anchors(root):
    train(detector(root, [8, 16, 32, 64, 128]))
    message = r'model.bbox_head has the strides \[16, .*, but its feature maps have 8, 16, 32, '
    with pytest.raises(ConfigError, match=message):
        train(detector(root, [16, 32, 64, 128, 256]))


def test_strides_of_a_decode_head(root):
    """Four maps of a columnar backbone for SemanticFPN's head, which expects a pyramid."""
    pyramid = dict(type='mmbixt.FeaturePyramidAdapter', in_channels=16, in_strides=16)
    neck = [pyramid, dict(type='FPN', in_channels=[16] * 4, out_channels=8, num_outs=4)]
    head = dict(type='FPNHead', in_channels=[8] * 4, in_index=(0, 1, 2, 3), channels=8)
    head |= dict(feature_strides=[4, 8, 16, 32], num_classes=3)
    backbone = dict(VARIANTS['xcit'], arch=dict(BIXT, depth=4), out_indices=(0, 1, 2, 3))
    parts = dict(backbone=backbone, neck=neck, decode_head=dict(head, _delete_=True))
    train(segmentor(root, model=parts))
    message = r'decode_head has the strides \[4, 8, 16, 32\], but its feature maps have 12, 12'
    with pytest.raises(ConfigError, match=message):
        train(segmentor(root, model=dict(parts, neck=neck[1])))


def test_normalisation_for_images_up_to_1(root):
    scale = {'model.data_preprocessor': dict(mean=[0.5] * 3, std=[0.25] * 3)}
    with pytest.raises(ConfigError, match='mean is for images up to 1'):
        train(segmentor(root, **scale))
    model = SimpleNamespace(data_preprocessor=SimpleNamespace(mean=torch.tensor([0.1])))
    reflectance = torch.full((1, 4, 4), 1.6)  # of clouds, in images from 0 to about 1
    assert not [*range_problems(model, dict(inputs=[reflectance]))]


@pytest.mark.parametrize(
    'name',
    [
        'htc/htc_r50_fpn_1x_coco',
        'scnet/scnet_r50_fpn_1x_coco',
        'rpn/rpn_r50_fpn_1x_coco',
        'guided_anchoring/ga-rpn_r50-caffe_fpn_1x_coco',
    ],
)
def test_heads_of_other_classes(name):
    """Stuff, foreground; one of them has regions of another map."""
    with fresh_mmengine(), torch.device('meta'):
        init_default_scope('mmdet')
        model = MODELS.build(read_config(f'mmdet::{name}.py').model)
    assert [*head_problems(model, dict(train=('thing',) * 80))] == []
    assert [*stride_problems(model, 320, [80, 40, 20, 10, 5])] == []


@pytest.mark.parametrize(
    ('spoil', 'message'),
    [
        (lambda c: c['categories'][2].update(name='bus'), 'lacks the categories car; it has sky'),
        (
            lambda c: c['categories'].reverse(),
            r"another order .*Set classes=\('car', 'road', 'sky'",
        ),
    ],
)
def test_coco_files(root, spoil, message):
    assert [*dataset_problems(DATASETS.build(detection(root)))] == []
    edit_coco(root, spoil)
    (problem,) = dataset_problems(DATASETS.build(detection(root)))
    assert re.search(message, problem)


@pytest.mark.parametrize(
    ('kind', 'options', 'is_wrong'),
    [
        (PolyLR, dict(end=9), True),
        (PolyLR, dict(end=99), False),
        (PolyLR, dict(end=9, eta_min=1e-4), False),
        (CosineAnnealingLR, dict(end=9), True),
        (CosineAnnealingLR, dict(end=9, T_max=4), False),  # it rises again
    ],
)
def test_schedules_that_reach_0_before_the_end(kind, options, is_wrong):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    schedule = kind(optimizer, by_epoch=False, **options)
    for schedules in ([schedule], dict(one=[schedule])):
        problems = [*schedule_problems(schedules, {True: 3, False: 99})]
        assert bool(problems) == is_wrong
    assert all('from there on the learning rate is 0. Set its end to 99.' in x for x in problems)
