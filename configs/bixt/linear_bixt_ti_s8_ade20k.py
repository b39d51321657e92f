_base_ = './linear_bixt_ti_ade20k.py'

# One token for every 8 pixels, from patches of 16 x 16 that overlap by half: four times the tokens
# with about 3.7 times the operations and as many weights.
model = dict(backbone=dict(patch_stride=8, init_cfg=dict(checkpoint='bixt://tiny-8-d13')))
