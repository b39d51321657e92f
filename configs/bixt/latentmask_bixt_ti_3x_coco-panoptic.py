_base_ = [
    '../_base_/models/latentmask_bixt_ti_mmdet.py',
    '../_base_/datasets/coco_panoptic.py',
    '../_base_/schedules/adamw_3x.py',
    '../_base_/mmdet_runtime.py',
]

sync_bn = 'torch'  # also in the backbone
default_hooks = dict(checkpoint=dict(save_best='coco_panoptic/PQ'))
