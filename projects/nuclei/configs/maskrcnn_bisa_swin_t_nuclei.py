_base_ = './_base_/nuclei.py'

model = dict(
    backbone=dict(type='mmbixt.BiSASwin', arch='tiny', lam=0.5, drop_path_rate=0.2),
    neck=dict(type='FPN', in_channels=[96, 192, 384, 768], out_channels=128, num_outs=5),
)
