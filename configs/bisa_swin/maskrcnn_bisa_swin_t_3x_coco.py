_base_ = [
    '../_base_/models/maskrcnn.py',
    '../_base_/datasets/coco_instance_multiscale.py',
    '../_base_/schedules/adamw_3x.py',
    '../_base_/mmdet_runtime.py',
]

model = dict(
    # No weights of BiSA-Swin are published: this starts as a plain Swin, to within 1 %, and learns
    # the share of self-attention. With ImageNet weights of your own, lam=0.5 is the paper's.
    backbone=dict(
        type='mmbixt.BiSASwin',
        arch='tiny',
        lam='learned',
        lam_init=0.99,
        drop_path_rate=0.2,
        init_cfg=dict(type='Pretrained', checkpoint='swin://tiny'),
    ),
    neck=dict(type='FPN', in_channels=[96, 192, 384, 768], out_channels=256, num_outs=5),
)
