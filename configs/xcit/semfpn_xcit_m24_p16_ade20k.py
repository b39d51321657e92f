_base_ = './semfpn_xcit_s12_p16_ade20k.py'

channels = 512
adapter, fpn = _base_.model.neck
adapter.in_channels = channels
fpn.in_channels = [channels] * 4
fpn.out_channels = channels
model = dict(
    # the authors' rate with SemanticFPN; 0.15 otherwise
    backbone=dict(
        arch='medium24',
        drop_path_rate=0.2,
        init_cfg=dict(checkpoint='xcit://medium24-p16-384-dist'),
    ),
    neck=[adapter, fpn],
    decode_head=dict(in_channels=[channels] * 4),
)
