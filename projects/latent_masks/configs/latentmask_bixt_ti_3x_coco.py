_base_ = [
    './_base_/latentmask_bixt_ti_mmdet.py',
    '../../../configs/_base_/datasets/coco_instance_multiscale.py',
    '../../../configs/_base_/schedules/adamw_3x.py',
    '../../../configs/_base_/mmdet_runtime.py',
]
custom_imports = dict(imports=['projects.latent_masks'], allow_failed_imports=False)

# instances of the 80 classes of things
model = dict(
    panoptic_head=dict(num_stuff_classes=0),
    panoptic_fusion_head=dict(num_stuff_classes=0),
    test_cfg=dict(panoptic_on=False, instance_on=True),
)

sync_bn = 'torch'  # also in the backbone
