_base_ = './maskrcnn_xcit_s12_p16_3x_coco.py'

channels = 384
model = dict(
    backbone=dict(arch='small24', patch_size=16),
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
