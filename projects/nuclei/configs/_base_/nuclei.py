# Mask R-CNN on photographs of nuclei from random weights; a config adds the backbone and the neck.
# ITERATIONS (of 4 images) is the budget of a run. Most nuclei are 6 to 47 pixels large (5 to 95 %,
# square root of the area), and an image has up to 375 of them.
_base_ = ['mmbixt::_base_/models/maskrcnn.py', 'mmbixt::_base_/mmdet_runtime.py']

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='mmbixt.CheckSample'),
    dict(  # half of the images have 256 x 256 pixels
        type='RandomCrop',
        crop_type='absolute_range',
        crop_size=(192, 320),
        recompute_bbox=True,
        allow_negative_crop=True,
    ),
    dict(type='Resize', scale=(256, 256), keep_ratio=False),
    dict(type='FilterAnnotations', min_gt_bbox_wh=(2, 2), keep_empty=False),
    dict(type='RandomFlip', prob=0.75, direction=['horizontal', 'vertical', 'diagonal']),
    dict(type='PackDetInputs'),
]
meta_keys = ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale_factor=1.0, keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='PackDetInputs', meta_keys=meta_keys),
]
nuclei = dict(type='CocoDataset', metainfo=dict(classes=('nucleus',), palette=[(220, 60, 20)]))
train, val, test = (
    dict(nuclei, ann_file=f'data/nuclei/{x}.json', data_prefix=dict(img=f'data/nuclei/{x}'))
    for x in ('train', 'val', 'test')
)
train_dataloader = dict(
    batch_size=4,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(train, pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=2,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(val, pipeline=test_pipeline, test_mode=True),
)
test_dataloader = dict(val_dataloader, dataset=dict(test, pipeline=test_pipeline, test_mode=True))
val_evaluator = dict(type='mmbixt.BoundaryCocoMetric', metric=['bbox', 'segm'])
val_evaluator['ann_file'] = val['ann_file']
test_evaluator = dict(val_evaluator, ann_file=test['ann_file'])

# 128 channels behind the backbone, half of the usual ones: the mask head alone would take 0.7 G
# multiply-adds for each object
channels = 128
model = dict(
    rpn_head=dict(
        in_channels=channels,
        feat_channels=channels,
        anchor_generator=dict(scales=[2, 4]),  # 8 and 16 pixels on the first level
    ),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=channels),
        bbox_head=dict(in_channels=channels, num_classes=1),
        mask_roi_extractor=dict(out_channels=channels),
        mask_head=dict(in_channels=channels, conv_out_channels=channels, num_classes=1),
    ),
    train_cfg=dict(rcnn=dict(sampler=dict(num=128))),  # of them at most 32 with a mask
    test_cfg=dict(rcnn=dict(max_per_img=400)),
)

iterations = int('{{$ITERATIONS:10000}}')
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=5e-4, weight_decay=0.05, fused=True),
    clip_grad=dict(max_norm=1.0),
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
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, end=max(2, iterations // 20)),
    dict(type='PolyLR', eta_min=0.0, power=1.0, by_epoch=False, end=iterations),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=iterations, val_interval=iterations)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
default_hooks = dict(
    checkpoint=dict(
        by_epoch=False, interval=max(1, iterations // 10), max_keep_ckpts=1, save_best=None
    ),
    logger=dict(interval=20),
)
log_processor = dict(by_epoch=False)
randomness = dict(seed=0)
