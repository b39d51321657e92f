_base_ = '../../../configs/bixt/bixt_ti_l64_p16_120e_in1k.py'
custom_imports = dict(imports=['projects.bixt_ablations'], allow_failed_imports=False)

# All layers but the first share the weights of one cross-attention, by the printed parameters. The
# paper marks it as shared by all, which contradicts them.
model = dict(
    backbone=dict(
        type='mmbixt.BiXTAblation',
        attention='iterative',
        depth=24,
        self_attentions=1,
        share_first=False,
    )
)
