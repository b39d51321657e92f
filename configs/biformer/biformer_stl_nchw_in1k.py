_base_ = './biformer_stl_in1k.py'

model = dict(backbone=dict(arch='stl-nchw'))
