_base_ = './xcit_l24_p16_in1k.py'

model = dict(backbone=dict(patch_size=8))
