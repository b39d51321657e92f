_base_ = './xcit_s12_p16_in1k.py'

model = dict(
    backbone=dict(arch='small24'),
    neck=dict(layer_scale=1e-5),
)
