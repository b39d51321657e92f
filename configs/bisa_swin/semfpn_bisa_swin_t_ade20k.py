_base_ = [
    '../_base_/models/semfpn.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_80k.py',
    '../_base_/mmseg_runtime.py',
]

channels = [96, 192, 384, 768]
model = dict(
    backbone=dict(type='mmbixt.BiSASwin', arch='tiny', drop_path_rate=0.3),
    neck=dict(type='FPN', in_channels=channels, out_channels=256, num_outs=4),
    decode_head=dict(in_channels=[256] * 4),
)

# 16 images a step: 8 GPUs x 2
train_dataloader = dict(batch_size=2)
auto_scale_lr = dict(base_batch_size=16)
