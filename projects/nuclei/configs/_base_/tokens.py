_base_ = './nuclei.py'

# for backbones whose maps are all of stride 8
model = dict(
    neck=[
        dict(
            type='mmbixt.FeaturePyramidAdapter',
            in_channels=192,
            in_strides=8,
            norm_cfg=dict(type='BN'),
        ),
        dict(type='FPN', in_channels=[192] * 4, out_channels=128, num_outs=5),
    ],
)
