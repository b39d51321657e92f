_base_ = [
    './_base_/latentmask_bixt_ti_mmdet.py',
    './_base_/coco_panoptic.py',
    '../../../configs/_base_/schedules/adamw_3x.py',
    '../../../configs/_base_/mmdet_runtime.py',
]
custom_imports = dict(imports=['projects.latent_masks'], allow_failed_imports=False)

sync_bn = 'torch'  # also in the backbone
default_hooks = dict(checkpoint=dict(save_best='coco_panoptic/PQ'))
