_base_ = './upernet_xcit_s12_p16_ade20k.py'

channels = 192
model = dict(
    backbone=dict(arch='tiny12', init_cfg=dict(checkpoint='xcit://tiny12-p16-384-dist')),
    neck=dict(in_channels=channels),
    decode_head=dict(in_channels=[channels] * 4),
    auxiliary_head=dict(in_channels=channels),
)
