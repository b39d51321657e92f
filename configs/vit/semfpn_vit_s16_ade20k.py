_base_ = [
    '../_base_/models/semfpn.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_80k.py',
    '../_base_/mmseg_runtime.py',
]

# A plain ViT with the neck, the head and the schedule of semfpn_xcit_s12_p16_ade20k.
channels = 384
model = dict(
    data_preprocessor=dict(
        mean=[127.5, 127.5, 127.5],  # as these weights were trained
        std=[127.5, 127.5, 127.5],
        test_cfg=dict(size_divisor=16),
    ),
    backbone=dict(
        type='mmpretrain.TIMMBackbone',
        model_name='vit_small_patch16_224.augreg_in21k_ft_in1k',
        features_only=True,
        pretrained=True,  # from the Hugging Face Hub, once
        out_indices=(3, 5, 7, 11),
        dynamic_img_size=True,
        dynamic_img_pad=True,
    ),
    neck=[
        dict(
            type='mmbixt.FeaturePyramidAdapter',
            in_channels=channels,
            in_strides=16,
            norm_cfg=dict(type='SyncBN', requires_grad=True),
        ),
        dict(type='FPN', in_channels=[channels] * 4, out_channels=channels, num_outs=4),
    ],
    decode_head=dict(in_channels=[channels] * 4),
)

# 16 images per step: 8 GPUs x 2
train_dataloader = dict(batch_size=2)
auto_scale_lr = dict(base_batch_size=16)
