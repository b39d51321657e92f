_base_ = './biformer_s_in1k.py'

model = dict(backbone=dict(arch='tiny'))
