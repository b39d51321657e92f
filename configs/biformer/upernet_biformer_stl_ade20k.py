_base_ = './upernet_biformer_s_ade20k.py'

# Swin's layout with routing attention. No recipe and no result is published for UPerNet: this is
# the recipe of BiFormer-S.
channels = [96, 192, 384, 768]
model = dict(
    backbone=dict(arch='stl', init_cfg=dict(checkpoint='biformer://stl')),
    decode_head=dict(in_channels=channels),
    auxiliary_head=dict(in_channels=channels[2]),
)
