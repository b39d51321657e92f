"""What is said of each mistake in a config, and that nothing is said where there is none."""

import re
from functools import partial

import numpy as np
import pytest
import torch
from checking import CLASSES, TRAINING, found
from helpers import CONFIGS, others_in_zoo, takes_four_channels
from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.hooks import Hook
from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS
from mmengine.utils import deprecated_api_warning
from running import fresh_mmengine

from mmbixt.check.classes import folder_problems
from mmbixt.check.config import ConfigError, check_config


def problems_of(cfg, *splits):
    """Those of a config whose data are missing."""
    return [x for x in found(cfg, splits)[0] if 'was not found' not in x]


def test_nothing_is_wrong_with_a_config_that_trains_and_nothing_is_disturbed(cfg):
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    text = cfg.pretty_text
    assert found(cfg) == ([], [])
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert cfg.pretty_text == text


LAYER_DECAY = 'mmbixt.LayerDecayOptimWrapperConstructor'
LORA = dict(type='mmpretrain.LoRAModel', _delete_=True, rank=4, targets=[dict(type='qkv')])
LORA |= dict(module=dict(type='mmbixt.XCiT'))
# a wrong setting, and what is said of it
TOGETHER = {
    'model.backbone.type': ('mmbixt.BiFromer', r"Is 'mmbixt\.BiFormer' meant\?"),
    'model.decode_head.type': ('FPNhead', r"Is 'FPNHead' meant\?"),
    'default_hooks.finite_loss.type': ('mmbixt.FinitLossHook', r"Is 'mmbixt\.FiniteLossHook' mean"),
    'optim_wrapper.optimizer.type': ('AdmaW', "Is 'AdamW' meant"),
    'val_cfg.type': ('ValLop', "Is 'ValLoop' meant"),
    'model.neck.in_channels': ([64, 128, 256, 500], r'but .* has \[64, 128, 256, 512\]: use'),
    'model.decode_head.in_channels': ([256, 256, 256, 99], r'has \[256, 256, 256, 256\]: use'),
    'model.backbone.num_regions': (6, 'for an image of 64 x 64 .* side of 4'),
    'model.decode_head.num_classes': (150, 'train_dataloader, val_dataloader have 3 classes'),
    'train_cfg.max_iter': (1, "IterBasedTrainLoop .* Is 'max_iters' meant"),
    'train_cfg.val_interval': (0, 'must be larger than 0'),
    'optim_wrapper.optimizer.momentum': (0.9, 'AdamW has no such argument.* _delete_'),
    'optim_wrapper.clip_gard': (dict(max_norm=1), "Is 'clip_grad' meant"),
    'optim_wrapper.accumulative_counts': ([2], 'is no number'),
    'param_scheduler.0.start_facto': (1, "Is 'start_factor' meant"),
    'param_scheduler.0.end': ('1k', 'is no number'),
    'default_hooks.logger.intervall': (5, "Is 'interval' meant"),
    'default_hooks.checkpoint.max_keep': (2, 'CheckpointHook has no such argument'),
    'default_hooks.loger': (dict(interval=2), "Is 'logger' meant"),
    'val_evaluator.0': (dict(type='CocoMetric'), 'Use IoUMetric'),
    'val_evaluator.1': (dict(type='IoUMetric', iou_metrics=['mIou']), 'has mIou; IoUMetric knows'),
    'load_from': ('xcit://tiny12-p16-dits', 'There are .* named .*-dist'),
    'randomness.sed': (1, "Is 'seed' meant"),
    'train_dataloader.num_worker': (1, "Is 'num_workers' meant"),
    'train_dataloader.sampler.shufle': (True, "Is 'shuffle' meant"),
}


def test_all_mistakes_are_said_at_once(cfg):
    cfg.val_evaluator = [{}, {}]
    cfg.merge_from_dict({key: value for key, (value, _) in TOGETHER.items()})
    problems, _ = found(cfg)
    for key, (_, expected) in TOGETHER.items():
        start = re.sub(r'\.(type|num_workers|\d)$', '', key)
        assert any(x.startswith(start) and re.search(expected, x) for x in problems), key
    assert len(problems) == len(TOGETHER)


ALONE = [
    ({'model.backbone.num_region': 3}, "keyword argument 'num_region'. Is 'num_regions' meant"),
    ({'model.backbone.depth': 50}, r"'depth'. It has .*in_channels.* If it is inherited, _delete_"),
    ({'model.backbone.arch': 'gigantic'}, r"'gigantic' is not one of 'tiny', 'small'"),
    ({'model.decode_head.in_index': [0, 1, 2, 9]}, r'decode_head \(FPNHead\) cannot use'),
    ({'model.decode_head.in_index': [3, 2, 1, 0]}, r'strides \[4, 8, 16, 32\], .* \[32, 16, 8, 4'),
    (
        {'model.decode_head.feature_strides': [8, 4, 16, 32]},
        r'FPNHead\): AssertionError: assert min\(feature_strides\) == feature_strides\[0\]',
    ),
    ({'model.backbone': LORA | dict(type='LoRAModel')}, "Is 'mmpretrain.LoRAModel' meant"),
    (
        {'model.backbone': LORA | dict(targets=[dict(type='qvk')])},
        "No linear layer of its module is 'qvk'; its layers end with fc1, fc2, proj, qkv",
    ),
    (
        {'model.backbone.init_cfg': dict(_delete_=True, type='Pretrained', checkpoint='lost.pth')},
        r"model\.backbone\.init_cfg\.checkpoint = 'lost\.pth': there is no such file",
    ),
    (
        {'model.backbone.init_cfg': dict(_delete_=True, type='Pretrained', chekpoint='x.pth')},
        r"init_cfg\.chekpoint: Pretrained has no such argument\. Is 'checkpoint' meant",
    ),
    (
        {'model.neck': [dict(type='mmbixt.FeaturePyramidAdapter', _delete_=True)]},
        "'_delete_'. Nothing is inherited here",
    ),
    ({'model.test_cfg.mode': 'slide'}, 'test_cfg, val_dataloader: the model cannot pred.*stride'),
    pytest.param(
        {'model.data_preprocessor.mean': [0, 0, 0, 0]},
        r'data_preprocessor cannot prepare .*3 x .*. Its mean has 4 channels; the first image has',
        marks=takes_four_channels,
    ),
    ({'custom_hooks': [dict(type='EMAHook', ema_type='ExpMomentumEMA')]}, 'ema_type.* no registry'),
    ({'default_scope': None}, 'default_scope = None, which has no EncoderDecoder. Set'),
    ({'default_scope': 'mmsegm'}, "default_scope = 'mmsegm', which has no EncoderDecoder. Set"),
    ({'model': None}, 'The config has no model'),
    ({'model.decode_head.num_classes': 2}, r'a mistake in .*\n- model\.decode_head\.num_classes'),
    ({'train_cfg': dict(_delete_=True, max_epochs=1)}, 'train_cfg has no type: set'),
    ({'train_cfg.max_epochs': 3}, "train_cfg.type = 'IterBasedTrainLoop': set .*max_iters"),
    (
        {'optim_wrapper': dict(constructor=LAYER_DECAY, paramwise_cfg=dict(decay_rate=1.5))},
        'optim_wrapper: paramwise_cfg.decay_rate is 1.5',
    ),
    ({'optim_wrapper.constructor': LAYER_DECAY[:-1]}, f"Is '{LAYER_DECAY}' meant"),
    (
        {'param_scheduler': [dict(type='MultiStepLR', milestones=5, by_epoch=False)]},
        'milestones = 5 is no list of numbers',
    ),
    (
        {'param_scheduler': [dict(type='PolyLR', eta_min='1e-5', by_epoch=False)]},
        "eta_min = '1e-5' is no number",
    ),
    *(
        ({'val_evaluator': [dict(type='mmbixt.BoundaryIoUMetric', **wrong)]}, said)
        for wrong, said in (
            (dict(ratios=(2,)), r'val_evaluator \(BoundaryIoUMetric\): ratios are fractions'),
            (dict(widths=(1.5,)), 'widths are pixels .*got 1.5'),
            (dict(tolerances=(0,)), 'tolerances are pixels, above 0, got 0'),
        )
    ),
    ({'default_hooks.checkpoint.save_best': 'miou'}, r"save_best = 'miou' .* example mIoU\."),
    ({'val_dataloader.dataset.pipeline': []}, 'val_dataloader.* its last step must be PackSeg'),
    (
        {'train_dataloader.dataset.pipeline.1.reduce_zero_label': True},
        r'0\.png cannot be read with these settings: .*`reduce_zero_label` as False',
    ),
    ({'train_dataloader.dataset.img_suffix': '.tif'}, r'images, NAME\.tif: no images found'),
    ({'train_dataloader.dataset.data_prefix.img_path': 'x'}, r'was not found. Missing:\n.*/x\n'),
    (
        {'val_dataloader.dataset.metainfo': dict(_delete_=True)},
        r'val_dataloader\.dataset \(BaseSegDataset\) has no names of classes',
    ),
    (
        {'val_dataloader.dataset.metainfo.classes': 'road'},
        r"- val_dataloader\.dataset\.metainfo\.classes = 'road' is a string .* \('road',\)\.",
    ),
    ({'load_form': 'x.pth'}, "load_form: .* Is 'load_from' meant"),
    ({'optim_wraper': dict(clip_grad=None), 'optim_wrapper': None}, "Is 'optim_wrapper' meant"),
    ({'model.backbone.init_cfg': 'x.pth'}, "model.backbone.init_cfg has 'x.pth' in place of"),
    ({'val_dataloader.dataset': []}, r'val_dataloader.dataset has \[\] in place of a dict'),
    ({'optim_wrapper': [dict(type='OptimWrapper')]}, 'optim_wrapper has .* in place of a dict'),
]


@pytest.mark.parametrize(('options', 'expected'), ALONE)
def test_each_mistake_is_found(cfg, options, expected):
    cfg.merge_from_dict(options, allow_list_keys=True)
    with fresh_mmengine(), pytest.raises(ConfigError, match=expected):
        check_config(cfg, TRAINING, 'mine.py')


def test_weights_of_the_inherited_backbone():
    cfg = Config.fromstring("_base_ = 'mmseg::sem_fpn/fpn_r50_4xb4-160k_ade20k-512x512.py'", '.py')
    cfg.model.backbone = dict(type='mmbixt.BiFormer', arch='tiny')
    cfg.model.neck.in_channels = [64, 128, 256, 512]
    (problem,) = problems_of(cfg, 'train')
    assert problem.startswith(
        "model.pretrained = 'open-mmlab://resnet50_v1c': the backbone has no "
    )


def test_a_metric_of_a_project_with_a_name_of_ours_is_not_built(cfg):
    class IoUMetric(BaseMetric):
        def __init__(self, ann_file):
            raise FileNotFoundError

    cfg.val_evaluator = dict(type=IoUMetric, ann_file='x.json')
    assert found(cfg)[0] == []


def test_settings_that_change_nothing_are_noted(cfg):
    cfg.merge_from_dict(
        {
            'optim_wrapper.paramwise_cfg': dict(
                custom_keys=dict(
                    back_bone=dict(lr_mult=0.1), head=dict(wd_mult=0.0, lars_exclude=True)
                ),
                norm_decay_mul=0.0,
            ),
            'seed': 3,
            'optim_wraper': {'optimizer': {}},
            'train_dataloader.sampler': dict(_delete_=True, type='mmpretrain.RepeatAugSampler'),
            'train_dataloader.dataset.reduce_zero_label': True,
        }
    )
    problems, notes = found(cfg)
    assert problems == []
    for expected, note in zip(
        [
            'seed is not read: the section of the runner is randomness',
            'optim_wraper is not read: the section of the runner is optim_wrapper',
            'RepeatAugSampler.* 3 times, and only 1/3 of the 3 images',
            'train_dataloader.* reduce_zero_label=True, and .*0.png has the labels 0 and 255',
            'train_dataloader.* reduce_zero_label=True, and val_dataloader.* False: unless',
            "custom_keys.back_bone: no parameter has this in its name. Is 'backbone' meant",
            'custom_keys.head.wd_mult is not read. What is read: decay_mult, lr_mult',
            r'paramwise_cfg.norm_decay_mul is not read. What is read: .*norm_decay_mult',
        ],
        notes,
        strict=True,
    ):
        assert re.search(expected, note), note


def test_detector(root):
    """With heads that read what is cut out of feature maps."""
    cfg = Config.fromfile(CONFIGS / 'xcit/maskrcnn_xcit_t12_p16_3x_coco.py')
    cfg.merge_from_dict(
        {
            'model.neck.0.in_channels': 100,
            'model.neck.1.in_channels': [100] * 4,
            'model.rpn_head.in_channels': 7,
            'model.roi_head.bbox_roi_extractor.out_channels': 7,
            'model.roi_head.mask_head.in_channels': 7,
            'model.roi_head.bbox_head.in_channels': 7,
        }
    )
    problems = problems_of(cfg, 'train')
    assert [x.partition(' = ')[0].removeprefix('model.') for x in problems] == [
        'neck.0.in_channels',
        'neck.1.in_channels',
        'rpn_head.in_channels',
        'roi_head.bbox_roi_extractor.out_channels',
        'roi_head.bbox_head.in_channels',
        'roi_head.mask_head.in_channels',
    ]


STRIDES = {
    'mmdet::retinanet/retinanet_r50_fpn_1x_coco.py': [
        r'bbox_head: its anchors or points .* 64, 128\], but .* have \[16, 16, 16, 32, 64\]'
    ],
    'mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py': [
        'rpn_head: its',
        'roi_head.bbox_roi_extractor: its featmap_strides',
        'roi_head.mask_roi_extractor: its featmap_strides',
    ],
    'mmseg::sem_fpn/fpn_r50_4xb4-160k_ade20k-512x512.py': [
        r'decode_head: its feature_strides .* \[4, 8, 16, 32\], but .* have \[16, 16, 16, 16\]'
    ],
}


@pytest.mark.parametrize('name', STRIDES)
def test_strides_of_feature_maps(name):
    """XCiT's maps, all of one size, in a pyramid that was made for ResNet."""
    cfg = Config.fromstring(f'_base_ = {name!r}', '.py')
    outputs = 4 if 'mmseg' in name else 3
    cfg.model.pop('pretrained', None)
    cfg.model.backbone = dict(
        type='mmbixt.XCiT', arch='nano12', out_indices=(3, 5, 7, 11)[:outputs]
    )
    cfg.model.neck.update(in_channels=[128] * outputs, start_level=0)
    cfg.model.neck.pop('add_extra_convs', None)
    problems = problems_of(cfg, 'train')
    assert len(problems) == len(STRIDES[name])
    for problem, expected in zip(problems, STRIDES[name], strict=True):
        assert re.search(expected, problem), problem
    cfg.model.backbone.out_indices = (3, 5, 7, 11)
    cfg.model.neck = [
        dict(type='mmbixt.FeaturePyramidAdapter', in_channels=128, in_strides=16),
        {**cfg.model.neck, 'in_channels': [128] * 4, 'start_level': int('retina' in name)},
    ]
    assert problems_of(cfg, 'train') == []


class OwnMetric(BaseMetric):
    def __init__(self, **options):
        self.own = options.pop('own')
        super().__init__(**options)

    process = compute_metrics = None


class OwnHook(Hook):
    @deprecated_api_warning(dict(old='new'))
    def __init__(self, new):
        self.new = new


def test_what_users_define_is_not_refused(cfg):
    """Arguments that the check cannot know, and names of variables like those of sections."""
    cfg.custom_hooks = [dict(type=OwnHook, old=1), dict(type=partial(OwnHook, 1))]
    cfg.val_evaluator = [dict(type=OwnMetric, own=1), cfg.val_evaluator]
    cfg.default_hooks.checkpoint.save_best = 'own/score'
    OPTIM_WRAPPER_CONSTRUCTORS.register_module('OwnConstructor', module=OwnHook, force=True)
    cfg.optim_wrapper.constructor = 'OwnConstructor'
    cfg.optim_wrapper.own = cfg.optim_wrapper.optimizer.own = 1
    cfg.tta_dataloader = cfg.det_data_preprocessor = dict(a=1)
    assert found(cfg) == ([], [])


def test_folders_of_classes(tmp_path):
    for name in ('chair', 'person'):
        (tmp_path / 'train' / name).mkdir(parents=True)
    dataset = dict(type='CustomDataset', data_root=str(tmp_path), data_prefix='train')
    wrong, right = (('person', 'chair'), ('chair',)), (('chair', 'person'), ('a chair', 'someone'))
    for classes in (*wrong, *right):
        loader = dict(dataset=dict(dataset, metainfo=dict(classes=classes)))
        for scope, expected in (
            ('mmpretrain', classes in wrong),
            ('mmseg', 0),
        ):  # there a user's own class
            cfg = dict(default_scope=scope, train_dataloader=loader)
            assert len([*folder_problems(cfg, ('train',))]) == expected


def test_upernet_without_a_pyramid_is_noted(cfg):
    cfg.model.backbone = dict(type='mmbixt.XCiT', arch='nano12')
    cfg.model.neck, levels = None, dict(in_channels=[128] * 4, in_index=[0, 1, 2, 3])
    cfg.model.decode_head = dict(type='UPerHead', channels=32, num_classes=3, **levels)
    problems, (note,) = found(cfg)
    assert problems == []
    assert note.startswith('model.decode_head (UPerHead) gets 4 feature maps of stride 16, and is')
    cfg.model.neck = dict(type='mmbixt.FeaturePyramidAdapter', in_channels=128, in_strides=16)
    assert found(cfg) == ([], [])


def test_classifier():
    cfg = Config.fromfile(CONFIGS / 'biformer/biformer_t_in1k.py')
    cfg.merge_from_dict({'model.neck.in_channels': 99, 'model.head.num_classes': 10})
    problems = problems_of(cfg, 'train')
    assert len(problems) == 2
    assert problems[0].startswith('model.head.num_classes = 10, but train_dataloader has 1000')
    assert problems[1].startswith('model.neck.in_channels = 99, but its input has 512')
    cfg = Config.fromfile(CONFIGS / 'bisa_swin/bisa_swin_t_in1k.py')
    for split in TRAINING:
        cfg[f'{split}_dataloader'].dataset.metainfo = dict(classes=CLASSES)
    cfg.model.head.num_classes = 3
    problems = problems_of(cfg, *TRAINING)
    assert problems == [
        'data_preprocessor.num_classes = 1000, but train_dataloader has 3.',
        'val_evaluator: Accuracy has topk = (1, 5), but val_dataloader has 3 classes.',
    ]


IMPORTS = """
from mmengine.hooks import EMAHook, LoggerHook
from mmengine.runner import IterBasedTrainLoop
from mmseg.models import EncoderDecoder, FCNHead, SegDataPreProcessor
from torch.optim import AdamW

from mmbixt.backbones import XCiT

model = dict(
    type=EncoderDecoder,
    data_preprocessor=dict(type=SegDataPreProcessor, size=(64, 64)),
    backbone=dict(type=XCiT, arch='nano12', out_indices=(11,)),
    decode_head=dict(type=FCNHead, in_channels=128, channels=8, num_classes=3),
    test_cfg=dict(mode='whole'),
)
train_cfg = dict(type=IterBasedTrainLoop, max_iters=100)
optim_wrapper = dict(optimizer=dict(type=AdamW, lr=1e-3))
default_hooks = dict(logger=dict(type=LoggerHook, interval=5))
custom_hooks = [dict(type=EMAHook, momentum=0.01)]
"""


def test_config_that_imports_its_classes(tmp_path):
    (tmp_path / 'mine.py').write_text(IMPORTS)
    cfg = Config.fromfile(tmp_path / 'mine.py')
    assert found(cfg) == ([], [])
    cfg.optim_wrapper['optimizer']['momentum'] = 0.9
    ((problem,), _) = found(cfg)
    assert problem.startswith('optim_wrapper.optimizer.momentum = 0.9: AdamW has no such argument')


STOCK = [
    'mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py',
    'mmdet::cascade_rcnn/cascade-mask-rcnn_r50_fpn_1x_coco.py',
]
ALL_STOCK = [
    *STOCK,
    'mmseg::segformer/segformer_mit-b0_8xb2-160k_ade20k-512x512.py',
    'mmdet::deformable_detr/deformable-detr_r50_16xb2-50e_coco.py',
    'mmseg::beit/beit-base_upernet_8xb2-160k_ade20k-640x640_ms.py',
    'mmdet::panoptic_fpn/panoptic-fpn_r50_fpn_1x_coco.py',
    'mmdet::fpg/retinanet_r50_fpg_crop640_50e_coco.py',
    'mmpretrain::swin_transformer/swin-tiny_16xb64_in1k.py',
    'mmpretrain::inception_v3/inception-v3_8xb32_in1k.py',  # None among its outputs
    'mmpretrain::itpn/itpn-pixel_hivit-base-p16_8xb512-amp-coslr-800e_in1k.py',
    'mmdet::htc/htc_r50_fpn_1x_coco.py',
    'mmdet::ssd/ssd300_coco.py',
]


@pytest.mark.parametrize('name', others_in_zoo(ALL_STOCK, STOCK))
def test_no_false_alarm_about_stock_configs(name):
    """Whose data are missing."""
    cfg = Config.fromstring(f'_base_ = {name!r}', '.py')
    problems, notes = found(cfg, ('train', 'val', 'test'))
    assert [x for x in problems if 'was not found' not in x] == notes == []


def test_preprocessor_whose_type_the_model_adds(root):
    """As in mmpretrain's own configs."""
    steps = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(64, 64))]
    dataset = dict(type='CustomDataset', data_prefix=str(root / 'images'), with_label=False)
    dataset |= dict(pipeline=[*steps, dict(type='PackInputs')])
    model = dict(type='ImageClassifier', backbone=dict(type='ResNet', depth=18))
    cfg = Config(
        dict(
            default_scope='mmpretrain',
            model=model | dict(neck=dict(type='GlobalAveragePooling')),
            data_preprocessor=dict(num_classes=3, mean=[0, 0, 0], std=[255, 255, 255]),
            train_dataloader=dict(batch_size=1, dataset=dataset),
        )
    )
    assert found(cfg, ('train',)) == ([], [])
    cfg.data_preprocessor.mean = [0, 0]
    (problem,) = found(cfg, ('train',))[0]
    assert 'data_preprocessor' in problem
