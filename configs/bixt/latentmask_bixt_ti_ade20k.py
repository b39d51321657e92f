_base_ = [
    '../_base_/models/latentmask_bixt_ti.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_80k.py',
    '../_base_/mmseg_runtime.py',
]
