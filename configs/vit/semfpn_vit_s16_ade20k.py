# A plain ViT with the neck, the head and the schedule of XCiT.
_base_ = '../xcit/semfpn_xcit_s12_p16_ade20k.py'

model = dict(
    data_preprocessor=dict(
        mean=[127.5, 127.5, 127.5],  # as these weights were trained
        std=[127.5, 127.5, 127.5],
        test_cfg=dict(size_divisor=16),
    ),
    backbone=dict(
        _delete_=True,
        type='mmpretrain.TIMMBackbone',
        model_name='vit_small_patch16_224.augreg_in21k_ft_in1k',
        features_only=True,
        pretrained=True,  # from the Hugging Face Hub, once
        out_indices=(3, 5, 7, 11),
        dynamic_img_size=True,
        dynamic_img_pad=True,
    ),
)
