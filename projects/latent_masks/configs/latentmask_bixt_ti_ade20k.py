_base_ = [
    './_base_/latentmask_bixt_ti.py',
    '../../../configs/_base_/datasets/ade20k.py',
    '../../../configs/_base_/schedules/adamw_80k.py',
    '../../../configs/_base_/mmseg_runtime.py',
]
custom_imports = dict(imports=['projects.latent_masks'], allow_failed_imports=False)
