_base_ = '../../../../configs/_base_/models/encoder_decoder.py'

# BiXT-Ti/16 whose 64 latents are the queries of a mask classifier: the backbone takes the place of
# MaskFormer's decoders. Masks have a stride of 4, as in MaskFormer.
channels = 192  # BiXT-Ti
model = dict(
    backbone=dict(
        type='mmbixt.BiXT',
        arch='tiny',
        patch_stride=16,
        out_indices=(3, 5, 7, 11),
        out_latents=True,
        drop_path_rate=0.05,  # as in the paper for tiny models
        init_cfg=dict(type='Pretrained', checkpoint='bixt://tiny-16-d13'),
    ),
    neck=dict(
        type='mmbixt.FeaturePyramidAdapter',
        in_channels=channels,
        in_strides=16,
        out_strides=(4, 4, 4, 4),
        norm_cfg=dict(type='SyncBN', requires_grad=True),
    ),
    decode_head=dict(
        type='mmbixt.SemanticLatentMaskHead',
        in_channels=[channels] * 4,
        num_classes=150,
        align_corners=False,
    ),
)
