_base_ = [
    '../_base_/models/bixt_ti_classifier.py',
    '../_base_/datasets/imagenet_3augment.py',
    '../_base_/schedules/lamb_120e.py',
    '../_base_/mmpretrain_runtime.py',
]
