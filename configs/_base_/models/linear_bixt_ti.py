_base_ = './encoder_decoder.py'

# BiXT-Ti/16 with a linear classifier on the last layer's tokens. There is only one
# linear layer besides the backbone, so the result depends on the tokens alone.
model = dict(
    backbone=dict(
        type='mmbixt.BiXT',
        arch='tiny',
        patch_stride=16,
        out_indices=(11,),
        drop_path_rate=0.05,  # as in the paper for tiny models
        init_cfg=dict(type='Pretrained', checkpoint='bixt://tiny-16-d13'),
    ),
    decode_head=dict(
        type='mmbixt.LinearTokenHead',
        in_channels=192,
        num_classes=150,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
)
