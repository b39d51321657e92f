# BiXT-Ti/16 whose 64 latents are the queries of mmdet's MaskFormer, in place of its two decoders;
# as latentmask_bixt_ti.py. This is for panoptic segmentation.
channels = 192  # BiXT-Ti
classes = dict(num_things_classes=80, num_stuff_classes=53)
model = dict(
    type='MaskFormer',
    data_preprocessor=dict(
        type='DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=32,
        pad_mask=True,
        mask_pad_value=0,
        pad_seg=True,
        seg_pad_value=255,
    ),
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
    panoptic_head=dict(type='mmbixt.LatentMaskHead', in_channels=[channels] * 4, **classes),
    panoptic_fusion_head=dict(type='MaskFormerFusionHead', **classes),
    test_cfg=dict(
        panoptic_on=True,
        semantic_on=False,
        instance_on=False,
        max_per_image=100,
        object_mask_thr=0.8,
        iou_thr=0.8,
        filter_low_score=False,
    ),
)
