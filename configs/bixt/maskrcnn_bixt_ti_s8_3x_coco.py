_base_ = './maskrcnn_bixt_ti_3x_coco.py'

channels = 192
model = dict(
    backbone=dict(patch_stride=8, init_cfg=dict(checkpoint='bixt://tiny-8-d13')),
    neck=[
        dict(
            type='mmbixt.FeaturePyramidAdapter',
            in_channels=channels,
            in_strides=8,
            norm_cfg=dict(type='SyncBN', requires_grad=True),
        ),
        dict(type='FPN', in_channels=[channels] * 4, out_channels=256, num_outs=5),
    ],
)
