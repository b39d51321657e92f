_base_ = './upernet_xcit_s12_p16_ade20k.py'

channels = 512
model = dict(
    backbone=dict(arch='medium24', patch_size=16),
    neck=dict(
        type='mmbixt.FeaturePyramidAdapter',
        in_channels=channels,
        in_strides=16,
        norm_cfg=dict(type='SyncBN', requires_grad=True),
    ),
    decode_head=dict(in_channels=[channels] * 4),
    auxiliary_head=dict(in_channels=channels),
)
