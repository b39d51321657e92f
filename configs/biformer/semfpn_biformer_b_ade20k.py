_base_ = './semfpn_biformer_s_ade20k.py'

model = dict(
    backbone=dict(arch='base', drop_path_rate=0.3, init_cfg=dict(checkpoint='biformer://base')),
    neck=dict(in_channels=[96, 192, 384, 768]),
)
