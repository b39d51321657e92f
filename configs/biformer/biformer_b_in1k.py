_base_ = './biformer_s_in1k.py'

model = dict(
    backbone=dict(arch='base'),
    neck=dict(in_channels=768),
    head=dict(in_channels=768),
)
