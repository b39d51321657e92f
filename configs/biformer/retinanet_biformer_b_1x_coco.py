_base_ = './retinanet_biformer_s_1x_coco.py'

model = dict(
    backbone=dict(arch='base', drop_path_rate=0.3, init_cfg=dict(checkpoint='biformer://base')),
    neck=dict(in_channels=[192, 384, 768]),
)
