_base_ = [
    '../_base_/models/semfpn.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_80k.py',
    '../_base_/mmseg_runtime.py',
]

channels = 384
model = dict(
    backbone=dict(
        type='mmbixt.XCiT',
        arch='small12',
        patch_size=16,
        init_cfg=dict(type='Pretrained', checkpoint='xcit://small12-p16-384-dist'),
    ),
    neck=[
        dict(
            type='mmbixt.FeaturePyramidAdapter',
            in_channels=channels,
            in_strides=16,
            norm_cfg=dict(type='SyncBN', requires_grad=True),
        ),
        dict(type='FPN', in_channels=[channels] * 4, out_channels=channels, num_outs=4),
    ],
    decode_head=dict(in_channels=[channels] * 4),
)

# 16 images per step: 8 GPUs x 2
train_dataloader = dict(batch_size=2)
auto_scale_lr = dict(base_batch_size=16)
