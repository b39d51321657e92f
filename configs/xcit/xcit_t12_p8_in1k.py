_base_ = './xcit_t12_p16_in1k.py'

model = dict(backbone=dict(patch_size=8))
