# A config adds data and schedule, and the number of classes if it is not 1000.
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
        num_classes=1000,
        in_channels=768,
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
