_base_ = [
    '../_base_/models/maskrcnn_bisa_swin_t.py',
    '../_base_/datasets/coco_instance_multiscale.py',
    '../_base_/schedules/adamw_3x.py',
    '../_base_/mmdet_runtime.py',
]
