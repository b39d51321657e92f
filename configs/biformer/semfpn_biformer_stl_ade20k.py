_base_ = './semfpn_biformer_s_ade20k.py'

# Swin's layout with routing attention. The authors' script trains it with this drop path and in
# float32 (other models with mixed precision); the number of regions is not known.
model = dict(
    backbone=dict(arch='stl', drop_path_rate=0.1, init_cfg=dict(checkpoint='biformer://stl')),
    neck=dict(in_channels=[96, 192, 384, 768]),
)
