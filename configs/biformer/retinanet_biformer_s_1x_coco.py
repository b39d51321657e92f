_base_ = [
    '../_base_/models/retinanet.py',
    '../_base_/datasets/coco_detection.py',
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
        out_indices=(1, 2, 3),
    ),
    neck=dict(in_channels=[128, 256, 512]),
)

# as the authors train RetinaNet: little weight decay, on all weights
optim_wrapper = dict(
    _delete_=True,
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=1e-4, fused=True),
)
