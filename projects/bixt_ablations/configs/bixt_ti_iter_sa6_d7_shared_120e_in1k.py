_base_ = '../../../configs/bixt/bixt_ti_l64_p16_120e_in1k.py'
custom_imports = dict(imports=['projects.bixt_ablations'], allow_failed_imports=False)

# all layers share the weights of one cross-attention
model = dict(
    backbone=dict(type='mmbixt.BiXTAblation', attention='iterative', depth=7, self_attentions=6)
)
