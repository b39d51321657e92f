_base_ = './semfpn_xcit_t12_p16_ade20k.py'

channels = 192
model = dict(
    backbone=dict(patch_size=8, init_cfg=dict(checkpoint='xcit://tiny12-p8-384-dist')),
    neck=[
        dict(
            type='mmbixt.FeaturePyramidAdapter',
            in_channels=channels,
            in_strides=8,
            norm_cfg=dict(type='SyncBN', requires_grad=True),
        ),
        dict(type='FPN', in_channels=[channels] * 4, out_channels=channels, num_outs=4),
    ],
)
