# BiXT-Ti/16 with 12 layers and 64 latents, as a classifier.
model = dict(
    type='ImageClassifier',
    # 11 layers and the last one, which updates only the latents
    backbone=dict(
        type='mmbixt.BiXT', arch='tiny', depth=11, latent_layer=True, drop_path_rate=0.05
    ),
    neck=dict(type='mmbixt.LatentMeanNeck', in_channels=192),
    head=dict(
        type='mmbixt.ClassifierHead',
        num_classes=1000,
        in_channels=192,
        init_cfg=dict(type='Constant', layer='Linear', val=0.0),
        # binary cross-entropy, its mean over images and classes
        loss=dict(type='CrossEntropyLoss', use_sigmoid=True, loss_weight=1 / 1000),
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
