_base_ = './_base_/camvid.py'

model = dict(
    backbone=dict(type='ResNet', depth=18, norm_cfg=dict(type='SyncBN', requires_grad=True)),
    neck=dict(type='FPN', in_channels=[64, 128, 256, 512], out_channels=256, num_outs=4),
)
