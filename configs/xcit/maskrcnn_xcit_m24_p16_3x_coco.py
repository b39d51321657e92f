_base_ = './maskrcnn_xcit_s12_p16_3x_coco.py'

channels = 512
adapter, fpn = _base_.model.neck
adapter.in_channels = channels
fpn.in_channels = [channels] * 4
model = dict(
    backbone=dict(arch='medium24', init_cfg=dict(checkpoint='xcit://medium24-p16-384-dist')),
    neck=[adapter, fpn],
)
