_base_ = './semfpn_xcit_s12_p16_ade20k.py'

channels = 192
adapter, fpn = _base_.model.neck
adapter.in_channels = channels
fpn.in_channels = [channels] * 4
fpn.out_channels = channels
model = dict(
    backbone=dict(arch='tiny12', init_cfg=dict(checkpoint='xcit://tiny12-p16-384-dist')),
    neck=[adapter, fpn],
    decode_head=dict(in_channels=[channels] * 4),
)
