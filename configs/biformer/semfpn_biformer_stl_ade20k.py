_base_ = './semfpn_biformer_s_ade20k.py'

# Swin's layout with routing attention. The authors publish no dense config of it; this drop path is
# that of their ablation with MaxViT's attention (sfpn.maxvit_stl). The number of regions is not
# known.
model = dict(
    backbone=dict(arch='stl', drop_path_rate=0.1, init_cfg=dict(checkpoint='biformer://stl')),
    neck=dict(in_channels=[96, 192, 384, 768]),
)
