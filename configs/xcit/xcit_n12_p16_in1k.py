_base_ = './xcit_s12_p16_in1k.py'

model = dict(
    backbone=dict(arch='nano12'),
    neck=dict(in_channels=128, num_heads=4, tokens_norm=False),
    head=dict(in_channels=128),
)
