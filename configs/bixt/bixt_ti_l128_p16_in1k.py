_base_ = './bixt_ti_l64_p16_300e_in1k.py'

model = dict(backbone=dict(num_latents=128))
