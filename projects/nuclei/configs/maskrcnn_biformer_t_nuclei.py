_base_ = './_base_/nuclei.py'

model = dict(
    backbone=dict(
        type='mmbixt.BiFormer',
        arch='tiny',
        num_regions=4,  # 4 x 4: of 2 x 2 tokens in the last stage for 256 pixels
        drop_path_rate=0.1,
    ),
    neck=dict(type='FPN', in_channels=[64, 128, 256, 512], out_channels=128, num_outs=5),
)
