_base_ = [
    '../_base_/models/upernet.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_160k.py',
    '../_base_/mmseg_runtime.py',
]

channels = [64, 128, 256, 512]
model = dict(
    backbone=dict(
        type='mmbixt.BiFormer',
        arch='small',
        num_regions=8,  # 8 x 8, for crops of 512 pixels
        padding='legacy',  # attention includes padding, as in the authors' code; crops have none
        drop_path_rate=0.3,
        init_cfg=dict(type='Pretrained', checkpoint='biformer://small'),
    ),
    decode_head=dict(in_channels=channels),
    auxiliary_head=dict(in_channels=channels[2]),
)

# 16 images per step: 8 GPUs x 2
train_dataloader = dict(batch_size=2)
