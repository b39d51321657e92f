_base_ = '../../../../configs/_base_/datasets/coco_instance_multiscale.py'

# COCO 2017, things and stuff. mmdet needs panopticapi for it:
# pip install git+https://github.com/cocodataset/panopticapi.git
scales = [(side, 1333) for side in range(480, 801, 32)]
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadPanopticAnnotations'),
    dict(type='mmbixt.CheckSample'),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomChoice',
        transforms=[
            [dict(type='RandomChoiceResize', scales=scales, keep_ratio=True)],
            [
                dict(
                    type='RandomChoiceResize',
                    scales=[(400, 1333), (500, 1333), (600, 1333)],
                    keep_ratio=True,
                ),
                dict(
                    type='RandomCrop',
                    crop_type='absolute_range',
                    crop_size=(384, 600),
                    allow_negative_crop=True,
                ),
                dict(type='RandomChoiceResize', scales=scales, keep_ratio=True),
            ],
        ],
    ),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(1333, 800), keep_ratio=True),
    dict(type='LoadPanopticAnnotations'),
    dict(type='mmbixt.CheckSample'),
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'),
    ),
]
dataset_type = 'CocoPanopticDataset'
train_dataloader = dict(
    dataset=dict(
        type=dataset_type,
        ann_file='annotations/panoptic_train2017.json',
        data_prefix=dict(seg='annotations/panoptic_train2017/'),
        pipeline=train_pipeline,
    )
)
val_dataloader = dict(
    dataset=dict(
        type=dataset_type,
        ann_file='annotations/panoptic_val2017.json',
        data_prefix=dict(seg='annotations/panoptic_val2017/'),
        pipeline=test_pipeline,
    )
)
test_dataloader = val_dataloader

val_evaluator = dict(
    _delete_=True,
    type='CocoPanopticMetric',
    ann_file='data/coco/annotations/panoptic_val2017.json',
    seg_prefix='data/coco/annotations/panoptic_val2017/',
)
test_evaluator = val_evaluator
