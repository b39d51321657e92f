_base_ = './xcit_s12_p16_in1k.py'

model = dict(
    backbone=dict(arch='medium24'),
    neck=dict(in_channels=512, layer_scale=1e-5),
    head=dict(in_channels=512),
)
