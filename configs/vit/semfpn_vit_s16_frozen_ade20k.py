_base_ = './semfpn_vit_s16_ade20k.py'

# The backbone keeps its weights.
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={'backbone': dict(lr_mult=0.0)}))
