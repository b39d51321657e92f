_base_ = [
    '../_base_/models/maskrcnn.py',
    '../_base_/datasets/coco_instance_multiscale.py',
    '../_base_/schedules/adamw_3x.py',
    '../_base_/mmdet_runtime.py',
]

channels = 384
model = dict(
    backbone=dict(
        type='mmbixt.XCiT',
        arch='small12',
        patch_size=16,
        init_cfg=dict(type='Pretrained', checkpoint='xcit://small12-p16-384-dist'),
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
