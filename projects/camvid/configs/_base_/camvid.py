# SemanticFPN on CamVid from random weights; a config adds the backbone and the neck. The data are
# read as tools/new_config.py wrote it. IMAGES (images seen in training) is the budget of a run.
_base_ = ['mmbixt::_base_/models/semfpn.py', 'mmbixt::_base_/mmseg_runtime.py']

classes = ['sky', 'building', 'pole', 'road', 'pavement', 'tree']
classes += ['sign', 'fence', 'car', 'pedestrian', 'bicyclist']
palette = [
    *((128, 128, 128), (128, 0, 0), (192, 192, 128), (128, 64, 128), (60, 40, 222), (128, 128, 0)),
    *((192, 128, 128), (64, 64, 128), (64, 0, 128), (64, 64, 0), (0, 128, 192)),
]
scale, crop_size = (480, 360), (320, 320)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='mmbixt.CheckSample', num_classes=11),
    dict(type='RandomResize', scale=scale, ratio_range=(0.75, 1.5), keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='mmbixt.CheckSample', num_classes=11),
    dict(type='PackSegInputs'),
]
data = dict(
    type='BaseSegDataset',
    data_root='data/camvid',
    img_suffix='.jpg',
    seg_map_suffix='.png',
    metainfo=dict(classes=classes, palette=palette),
)
train_dataloader = dict(
    batch_size=8,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        **data,
        data_prefix=dict(img_path='img_dir/train', seg_map_path='ann_dir/train'),
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        **data,
        data_prefix=dict(img_path='img_dir/val', seg_map_path='ann_dir/val'),
        pipeline=test_pipeline,
    ),
)
test_dataloader = dict(
    batch_size=1,
    num_workers=2,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        **data,
        data_prefix=dict(img_path='img_dir/test', seg_map_path='ann_dir/test'),
        pipeline=test_pipeline,
    ),
)
val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = dict(type='mmbixt.BoundaryIoUMetric', tolerances=(3,))

# from the square roots of the classes' frequencies, as tools/new_config.py prints them
weights = [0.88, 0.75, 3.63, 0.64, 1.7, 1.15, 3.32, 3.39, 1.49, 4.5, 6.66]
model = dict(
    data_preprocessor=dict(size=crop_size),
    decode_head=dict(
        num_classes=11,
        in_channels=[256] * 4,
        loss_decode=dict(class_weight=weights, reduction='none'),
    ),
)

iterations = int('{{$IMAGES:25000}}') // 8
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.05, fused=True),
    constructor='mmbixt.FewGroupsConstructor',
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        bias_decay_mult=0.0,
        custom_keys={
            'relative_position_bias_table': dict(decay_mult=0.0),
            'backbone.latents': dict(decay_mult=0.0),
        },
    ),
)
param_scheduler = [  # mmengine's warm-up of one iteration would keep its first rate to the end
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=max(2, iterations // 20)),
    dict(type='PolyLR', eta_min=0.0, power=1.0, by_epoch=False, begin=0, end=iterations),
]
train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=iterations, val_interval=max(1, iterations // 10)
)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
default_hooks = dict(
    checkpoint=dict(interval=max(1, iterations // 10), max_keep_ckpts=1, save_best=None)
)
randomness = dict(seed=0)
