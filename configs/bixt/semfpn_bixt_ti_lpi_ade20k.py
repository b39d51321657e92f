_base_ = './semfpn_bixt_ti_ade20k.py'

# the paper's "+LPI": XCiT's local patch interaction on the tokens after each layer (no published
# weights), and the convolutional tokeniser
model = dict(
    backbone=dict(
        patch_embed='conv',
        token_refiner='lpi',
        init_cfg=dict(checkpoint='bixt://tiny-16-conv-d13'),
    )
)
