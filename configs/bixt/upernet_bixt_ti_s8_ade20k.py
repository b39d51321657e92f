_base_ = './upernet_bixt_ti_ade20k.py'

channels = 192
model = dict(
    backbone=dict(patch_stride=8),
    neck=dict(
        type='mmbixt.FeaturePyramidAdapter',
        in_channels=channels,
        in_strides=8,
        norm_cfg=dict(type='SyncBN', requires_grad=True),
    ),
)
