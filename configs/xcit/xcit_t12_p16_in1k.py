_base_ = './xcit_s12_p16_in1k.py'

model = dict(
    backbone=dict(arch='tiny12'),
    neck=dict(in_channels=192, num_heads=4),
    head=dict(in_channels=192),
)
