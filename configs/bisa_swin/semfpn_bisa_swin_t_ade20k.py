_base_ = [
    '../_base_/models/semfpn.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_80k.py',
    '../_base_/mmseg_runtime.py',
]

channels = [96, 192, 384, 768]
model = dict(
    # No weights of BiSA-Swin are published. This starts from a plain Swin, with a share of 1 % for
    # inverse self-attention, and learns the share. With ImageNet weights of BiSA-Swin that you
    # trained, use lam=0.5 as in the paper.
    backbone=dict(
        type='mmbixt.BiSASwin',
        arch='tiny',
        lam='learned',
        lam_init=0.99,
        drop_path_rate=0.3,
        init_cfg=dict(type='Pretrained', checkpoint='swin://tiny'),
    ),
    neck=dict(type='FPN', in_channels=channels, out_channels=256, num_outs=4),
    decode_head=dict(in_channels=[256] * 4),
)

# 16 images per step: 8 GPUs x 2
train_dataloader = dict(batch_size=2)
auto_scale_lr = dict(base_batch_size=16)
