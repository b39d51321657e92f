_base_ = [
    '../_base_/models/maskrcnn.py',
    '../_base_/datasets/coco_instance_multiscale.py',
    '../_base_/schedules/adamw_3x.py',
    '../_base_/mmdet_runtime.py',
]

channels = 192
model = dict(
    backbone=dict(
        type='mmbixt.BiXT',
        arch='tiny',
        patch_stride=16,
        drop_path_rate=0.05,  # as in the paper for tiny models
        init_cfg=dict(type='Pretrained', checkpoint='bixt://tiny-16-d13'),
    ),
    neck=[
        dict(
            type='mmbixt.FeaturePyramidAdapter',
            in_channels=channels,
            in_strides=16,
            norm_cfg=dict(type='SyncBN', requires_grad=True),
        ),
        dict(type='FPN', in_channels=[channels] * 4, out_channels=256, num_outs=5),
    ],
)

sync_bn = 'torch'  # also in the backbone
