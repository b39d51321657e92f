_base_ = './bixt_ti_l64_p16_300e_in1k.py'

model = dict(
    backbone=dict(arch='small'),
    neck=dict(in_channels=384),
    head=dict(in_channels=384),
)
