_base_ = './upernet_biformer_s_ade20k.py'

channels = [96, 192, 384, 768]
model = dict(
    backbone=dict(arch='base', drop_path_rate=0.4, init_cfg=dict(checkpoint='biformer://base')),
    decode_head=dict(in_channels=channels),
    auxiliary_head=dict(in_channels=channels[2]),
)
