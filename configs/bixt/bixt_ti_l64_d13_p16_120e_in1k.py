_base_ = './bixt_ti_l64_p16_120e_in1k.py'

model = dict(backbone=dict(depth=12))
