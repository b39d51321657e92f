_base_ = [
    '../_base_/datasets/imagenet_randaugment.py',
    '../_base_/schedules/adamw_300e.py',
    '../_base_/mmpretrain_runtime.py',
]

model = dict(
    type='ImageClassifier',
    backbone=dict(type='mmbixt.XCiT', arch='small12', patch_size=16, out_indices=(-1,)),
    neck=dict(type='mmbixt.ClassAttentionNeck', in_channels=384, num_heads=8),
    head=dict(
        type='mmbixt.ClassifierHead',
        num_classes=1000,
        in_channels=384,
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
# As in the paper, test images are cropped only to a square.
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=224, edge='short', backend='pillow', interpolation='bicubic'),
    dict(type='CenterCrop', crop_size=224),
    dict(type='PackInputs'),
]
train_dataloader = dict(sampler=dict(type='RepeatAugSampler'))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=5, convert_to_iter_based=True),
    dict(
        type='CosineAnnealingLR',
        eta_min=1e-5,
        begin=5,
        end=400,
        T_max=395,
        convert_to_iter_based=True,
    ),
]
train_cfg = dict(max_epochs=400)
