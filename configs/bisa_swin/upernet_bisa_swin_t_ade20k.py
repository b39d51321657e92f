_base_ = [
    '../_base_/models/upernet.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_160k.py',
    '../_base_/mmseg_runtime.py',
]

channels = [96, 192, 384, 768]
model = dict(
    backbone=dict(type='mmbixt.BiSASwin', arch='tiny', drop_path_rate=0.3),
    decode_head=dict(in_channels=channels),
    auxiliary_head=dict(in_channels=channels[2]),
)

# 16 images a step: 8 GPUs x 2
train_dataloader = dict(batch_size=2)
