_base_ = './linear_bixt_ti_ade20k.py'

# One token for every 4 pixels: 16 times the tokens of stride 16, and as many weights.
model = dict(backbone=dict(patch_stride=4, init_cfg=dict(checkpoint='bixt://tiny-4-d13')))
