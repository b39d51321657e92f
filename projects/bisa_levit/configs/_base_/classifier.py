# A config adds data and schedule, and the number of classes if it is not 1000. The head is LeViT's
# with one classifier: with two, mmpretrain's cannot be trained.
model = dict(
    type='ImageClassifier',
    backbone=dict(type='mmbixt.BiSALeViT', arch='128s', img_size=224, bisa_layers=2, lam=0.5),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(
        type='LeViTClsHead',
        num_classes=1000,
        in_channels=384,
        distillation=False,
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
