_base_ = './bixt_ti_l64_p16_in1k.py'

model = dict(backbone=dict(patch_stride=8))
