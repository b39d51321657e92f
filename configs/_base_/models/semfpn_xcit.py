_base_ = './encoder_decoder.py'

# XCiT with SemanticFPN, as in the authors' dense code: the tokens after a third, a half, two thirds
# and all of the layers become the pyramid's four levels, and the FPN is as wide as the backbone.
# A config adds arch, patch size and what depends on the width.
norm_cfg = dict(type='SyncBN', requires_grad=True)
model = dict(
    backbone=dict(type='mmbixt.XCiT'),
    decode_head=dict(
        type='FPNHead',
        in_index=[0, 1, 2, 3],
        feature_strides=[4, 8, 16, 32],
        channels=128,
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=norm_cfg,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
)
