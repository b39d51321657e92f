# A linear classifier on frozen features of DINO: the class token after the last norm. Open for
# XCiT: this is the default of DINO's script (https://github.com/facebookresearch/dino), 0.001 for
# 256 images a step without weight decay, which advises to adapt the rate to each network.
_base_ = [
    '../../../configs/_base_/datasets/imagenet.py',
    '../../../configs/_base_/schedules/adamw_300e.py',
    '../../../configs/_base_/mmpretrain_runtime.py',
]

model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='mmbixt.XCiT', arch='small12', patch_size=16, out_indices=(-1,), frozen_stages=12
    ),
    neck=dict(type='mmbixt.ClassAttentionNeck', in_channels=384, num_heads=8),
    head=dict(type='mmbixt.ClassifierHead', num_classes=1000, in_channels=384),
)
load_from = 'xcit://small12-p16-dino'
train_pipeline = _base_.train_pipeline
train_pipeline[1].interpolation = 'bilinear'
train_dataloader = dict(drop_last=False, dataset=dict(pipeline=train_pipeline))
optim_wrapper = dict(
    _delete_=True,
    type='OptimWrapper',
    optimizer=dict(type='SGD', lr=0.004, momentum=0.9),
    paramwise_cfg=dict(custom_keys={'neck': dict(lr_mult=0.0)}),
)
param_scheduler = [dict(type='CosineAnnealingLR', eta_min=0.0, begin=0, end=100, T_max=100)]
train_cfg = dict(max_epochs=100)
