_base_ = './semfpn.py'

# BiXT-Ti/16 with SemanticFPN, connected as in XCiT's code: the tokens after a third, a half, two
# thirds and all of the layers become the pyramid's four levels. The FPN is 256 wide, which fits the
# paper's 19 M parameters.
channels = 192  # BiXT-Ti
model = dict(
    backbone=dict(
        type='mmbixt.BiXT',
        arch='tiny',
        patch_stride=16,
        out_indices=(3, 5, 7, 11),
        drop_path_rate=0.05,  # as in the paper for tiny models
        init_cfg=dict(type='Pretrained', checkpoint='bixt://tiny-16-d13'),
    ),
    neck=[
        dict(
            type='mmbixt.FeaturePyramidAdapter',
            in_channels=channels,
            in_strides=16,
            out_strides=(4, 8, 16, 32),
            norm_cfg=dict(type='SyncBN', requires_grad=True),
        ),
        dict(type='FPN', in_channels=[channels] * 4, out_channels=256, num_outs=4),
    ],
    decode_head=dict(in_channels=[256] * 4),
)
