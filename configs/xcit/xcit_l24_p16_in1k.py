_base_ = './xcit_s12_p16_in1k.py'

model = dict(
    backbone=dict(arch='large24'),
    neck=dict(in_channels=768, num_heads=16, layer_scale=1e-5),
    head=dict(in_channels=768),
)
