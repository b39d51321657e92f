_base_ = '../../../configs/bixt/bixt_ti_l64_p16_120e_in1k.py'
custom_imports = dict(imports=['projects.ablations'], allow_failed_imports=False)

# All layers but the first share the weights of one cross-attention, by the printed parameters. The
# paper marks it as shared by all, which contradicts them.
iterative = dict(attention='iterative', depth=22, self_attentions=1, share_first=False)
model = dict(backbone=dict(type='mmbixt.BiXTAblation', **iterative))
