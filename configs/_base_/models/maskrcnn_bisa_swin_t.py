_base_ = './maskrcnn.py'

model = dict(
    # No weights of BiSA-Swin are published. This starts from a plain Swin, with a share of 1 % for
    # inverse self-attention, and learns the share. With ImageNet weights of BiSA-Swin that you
    # trained, use lam=0.5 as in the paper.
    backbone=dict(
        type='mmbixt.BiSASwin',
        arch='tiny',
        lam='learned',
        lam_init=0.99,
        drop_path_rate=0.2,
        init_cfg=dict(type='Pretrained', checkpoint='swin://tiny'),
    ),
    neck=dict(type='FPN', in_channels=[96, 192, 384, 768], out_channels=256, num_outs=5),
)
