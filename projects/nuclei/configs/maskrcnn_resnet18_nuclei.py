_base_ = './_base_/nuclei.py'

model = dict(
    backbone=dict(type='ResNet', depth=18),
    neck=dict(type='FPN', in_channels=[64, 128, 256, 512], out_channels=128, num_outs=5),
)
