_base_ = './biformer_b_in1k.py'

model = dict(backbone=dict(arch='stl', drop_path_rate=0.1))
