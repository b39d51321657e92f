_base_ = './maskrcnn_xcit_s12_p16_3x_coco.py'

channels = 192
model = dict(
    backbone=dict(arch='tiny12', init_cfg=dict(checkpoint='xcit://tiny12-p16-384-dist')),
    neck=[
        dict(
            type='mmbixt.FeaturePyramidAdapter',
            in_channels=channels,
            in_strides=16,
            norm_cfg=dict(type='SyncBN', requires_grad=True),
        ),
        dict(type='FPN', in_channels=[channels] * 4, out_channels=256, num_outs=5),
    ],
)
