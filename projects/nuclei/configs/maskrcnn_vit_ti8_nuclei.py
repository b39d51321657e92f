_base_ = './_base_/tokens.py'

model = dict(
    backbone=dict(
        type='mmpretrain.TIMMBackbone',
        model_name='vit_tiny_patch16_224',
        patch_size=8,
        features_only=True,
        pretrained=False,
        out_indices=(3, 5, 7, 11),
        dynamic_img_size=True,
        drop_path_rate=0.1,  # as DeiT
    ),
)
