_base_ = './maskrcnn_bixt_ti_3x_coco.py'

adapter, fpn = _base_.model.neck
adapter.in_strides = 8
model = dict(
    backbone=dict(patch_stride=8, init_cfg=dict(checkpoint='bixt://tiny-8-d13')),
    neck=[adapter, fpn],
)
