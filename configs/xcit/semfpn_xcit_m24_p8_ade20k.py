_base_ = './semfpn_xcit_s12_p16_ade20k.py'

channels = 512
model = dict(
    # the authors' rate with SemanticFPN; 0.15 otherwise
    backbone=dict(arch='medium24', patch_size=8, drop_path_rate=0.2),
    neck=[
        dict(
            type='mmbixt.FeaturePyramidAdapter',
            in_channels=channels,
            in_strides=8,
            norm_cfg=dict(type='SyncBN', requires_grad=True),
        ),
        dict(type='FPN', in_channels=[channels] * 4, out_channels=channels, num_outs=4),
    ],
    decode_head=dict(in_channels=[channels] * 4),
)
