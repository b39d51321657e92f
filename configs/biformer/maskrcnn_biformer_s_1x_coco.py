_base_ = [
    '../_base_/models/maskrcnn.py',
    '../_base_/datasets/coco_instance.py',
    '../_base_/schedules/adamw_1x.py',
    '../_base_/mmdet_runtime.py',
]

model = dict(
    backbone=dict(
        type='mmbixt.BiFormer',
        arch='small',
        num_regions=16,  # images are larger than in segmentation
        padding='legacy',  # attention includes padding, as in the authors' code
        drop_path_rate=0.2,
        norm_eval=True,
        init_cfg=dict(type='Pretrained', checkpoint='biformer://small'),
    ),
    neck=dict(type='FPN', in_channels=[64, 128, 256, 512], out_channels=256, num_outs=5),
)
