_base_ = './bixt_ti_l64_p16_in1k.py'

model = dict(
    # of the released script; the paper does not have this width
    backbone=dict(arch='d256', drop_path_rate=0.0),
    neck=dict(in_channels=256),
    head=dict(in_channels=256),
)
