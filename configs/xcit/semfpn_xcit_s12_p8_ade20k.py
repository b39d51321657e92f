_base_ = './semfpn_xcit_s12_p16_ade20k.py'

adapter, fpn = _base_.model.neck
adapter.in_strides = 8
model = dict(
    backbone=dict(patch_size=8, init_cfg=dict(checkpoint='xcit://small12-p8-384-dist')),
    neck=[adapter, fpn],
)
