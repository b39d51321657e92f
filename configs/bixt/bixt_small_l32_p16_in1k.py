_base_ = './bixt_small_l64_p16_in1k.py'

model = dict(backbone=dict(num_latents=32))
