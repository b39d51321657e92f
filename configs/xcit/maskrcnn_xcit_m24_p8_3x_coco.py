_base_ = './maskrcnn_xcit_m24_p16_3x_coco.py'

adapter, fpn = _base_.model.neck
adapter.in_strides = 8
model = dict(
    backbone=dict(patch_size=8, init_cfg=dict(checkpoint='xcit://medium24-p8-384-dist')),
    neck=[adapter, fpn],
)
