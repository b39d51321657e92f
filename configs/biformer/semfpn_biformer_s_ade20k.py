_base_ = [
    '../_base_/models/semfpn.py',
    '../_base_/datasets/ade20k_align32.py',
    '../_base_/schedules/adamw_cosine_80k.py',
    '../_base_/mmseg_runtime.py',
]

channels = [64, 128, 256, 512]
model = dict(
    backbone=dict(
        type='mmbixt.BiFormer',
        arch='small',
        num_regions=8,  # 8 x 8, for crops of 512 pixels
        padding='legacy',  # attention includes padding, as in the authors' code; crops have none
        drop_path_rate=0.15,
        init_cfg=dict(type='Pretrained', checkpoint='biformer://small'),
    ),
    neck=dict(type='FPN', in_channels=channels, out_channels=256, num_outs=4),
    decode_head=dict(in_channels=[256] * 4),
)
