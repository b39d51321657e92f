_base_ = './biformer_stl_ablation_in1k.py'

model = dict(backbone=dict(channels_first=True))
