_base_ = [
    '../_base_/datasets/imagenet_randaugment.py',
    '../_base_/schedules/adamw_300e.py',
    '../_base_/mmpretrain_runtime.py',
]

model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='mmbixt.BiFormer',
        arch='small',
        num_regions=7,
        out_indices=(3,),
        output_norms=False,
        drop_path_rate=0.15,
    ),
    neck=dict(type='mmbixt.BatchNormMeanNeck', in_channels=512),
    head=dict(
        type='mmbixt.ClassifierHead',
        num_classes=1000,
        in_channels=512,
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
