_base_ = './upernet_xcit_t12_p16_ade20k.py'

model = dict(
    backbone=dict(patch_size=8, init_cfg=dict(checkpoint='xcit://tiny12-p8-384-dist')),
    neck=dict(in_strides=8),
)
