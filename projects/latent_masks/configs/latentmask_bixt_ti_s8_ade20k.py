_base_ = './latentmask_bixt_ti_ade20k.py'

model = dict(
    backbone=dict(patch_stride=8, init_cfg=dict(checkpoint='bixt://tiny-8-d13')),
    neck=dict(in_strides=8),
)
