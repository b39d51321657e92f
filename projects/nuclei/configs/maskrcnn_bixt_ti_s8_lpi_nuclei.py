_base_ = './_base_/tokens.py'

model = dict(
    backbone=dict(
        type='mmbixt.BiXT',
        arch='tiny',
        patch_stride=8,
        patch_embed='conv',
        token_refiner='lpi',
        out_indices=(3, 5, 7, 11),
        drop_path_rate=0.05,  # as in the paper for tiny models
    )
)
