_base_ = [
    '../_base_/models/maskrcnn.py',
    '../_base_/datasets/coco_instance.py',
    '../_base_/schedules/adamw_1x.py',
    '../_base_/mmdet_runtime.py',
]

model = dict(
    backbone=dict(type='mmbixt.BiSASwin', arch='tiny', drop_path_rate=0.2),
    neck=dict(type='FPN', in_channels=[96, 192, 384, 768], out_channels=256, num_outs=5),
)
