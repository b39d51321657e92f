_base_ = [
    '../_base_/models/upernet.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_160k.py',
    '../_base_/mmseg_runtime.py',
]

channels = [96, 192, 384, 768]
model = dict(
    # No weights of BiSA-Swin are published: this starts as a plain Swin, to within 1 %, and learns
    # the share of self-attention. With ImageNet weights of your own, lam=0.5 is the paper's.
    backbone=dict(
        type='mmbixt.BiSASwin',
        arch='tiny',
        lam='learned',
        lam_init=0.99,
        drop_path_rate=0.3,
        init_cfg=dict(type='Pretrained', checkpoint='swin://tiny'),
    ),
    decode_head=dict(in_channels=channels),
    auxiliary_head=dict(in_channels=channels[2]),
)

# 16 images a step: 8 GPUs x 2
train_dataloader = dict(batch_size=2)
