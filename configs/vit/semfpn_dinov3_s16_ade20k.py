_base_ = './semfpn_vit_s16_ade20k.py'

model = dict(
    data_preprocessor=dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375]),
    backbone=dict(model_name='vit_small_patch16_dinov3.lvd1689m'),
)
