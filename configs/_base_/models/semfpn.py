_base_ = './encoder_decoder.py'

# SemanticFPN. A config adds the backbone, the neck and the head's in_channels.
model = dict(
    decode_head=dict(
        type='FPNHead',
        in_index=[0, 1, 2, 3],
        feature_strides=[4, 8, 16, 32],
        channels=128,
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=dict(type='SyncBN', requires_grad=True),
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
)
