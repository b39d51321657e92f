_base_ = '../biformer/retinanet_biformer_s_1x_coco.py'

# The baseline in BiFormer's paper: a plain Swin Transformer with the same recipe.
model = dict(
    backbone=dict(
        _delete_=True,
        type='mmbixt.BiSASwin',
        arch='tiny',
        bisa_stages=(),
        drop_path_rate=0.2,
        out_indices=(1, 2, 3),
        init_cfg=dict(type='Pretrained', checkpoint='swin://tiny'),
    ),
    neck=dict(in_channels=[192, 384, 768]),
)
