_base_ = './_base_/camvid.py'

model = dict(
    backbone=dict(
        type='mmbixt.BiFormer',
        arch='tiny',
        num_regions=5,  # 5 x 5: of 2 x 2 tokens in the last stage, as on ADE20K
        drop_path_rate=0.1,
    ),
    neck=dict(type='FPN', in_channels=[64, 128, 256, 512], out_channels=256, num_outs=4),
)
