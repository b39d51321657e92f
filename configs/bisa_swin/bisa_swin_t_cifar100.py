_base_ = [
    '../_base_/datasets/cifar100.py',
    '../_base_/schedules/adamw_300e.py',
    '../_base_/mmpretrain_runtime.py',
]

model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='mmbixt.BiSASwin',
        arch='tiny',
        lam=0.5,
        out_indices=(3,),
        shift_single_window=False,
        drop_path_rate=0.2,
    ),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(
        type='mmbixt.ClassifierHead',
        num_classes=100,
        in_channels=768,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
optim_wrapper = dict(clip_grad=dict(max_norm=5.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=20, convert_to_iter_based=True),
    dict(
        type='CosineAnnealingLR',
        eta_min=1e-5,
        begin=20,
        end=600,
        T_max=580,
        convert_to_iter_based=True,
    ),
]
train_cfg = dict(max_epochs=600)
