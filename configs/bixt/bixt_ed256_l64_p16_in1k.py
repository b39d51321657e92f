_base_ = './bixt_ti_l64_p16_in1k.py'

model = dict(
    backbone=dict(arch='d256'),
    neck=dict(in_channels=256),
    head=dict(in_channels=256),
)
