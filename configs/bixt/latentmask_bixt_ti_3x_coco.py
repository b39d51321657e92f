_base_ = [
    '../_base_/models/latentmask_bixt_ti_mmdet.py',
    '../_base_/datasets/coco_instance_multiscale.py',
    '../_base_/schedules/adamw_3x.py',
    '../_base_/mmdet_runtime.py',
]

# instances of the 80 classes of things
model = dict(
    panoptic_head=dict(num_stuff_classes=0),
    panoptic_fusion_head=dict(num_stuff_classes=0),
    test_cfg=dict(panoptic_on=False, instance_on=True),
)

sync_bn = 'torch'  # also in the backbone
