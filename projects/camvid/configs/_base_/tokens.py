_base_ = './camvid.py'

# for backbones whose maps are all of stride 16
model = dict(
    neck=[
        dict(
            type='mmbixt.FeaturePyramidAdapter',
            in_channels=192,
            in_strides=16,
            norm_cfg=dict(type='SyncBN', requires_grad=True),
        ),
        dict(type='FPN', in_channels=[192] * 4, out_channels=256, num_outs=4),
    ],
)
