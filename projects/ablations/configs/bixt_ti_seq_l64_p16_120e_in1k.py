_base_ = '../../../configs/bixt/bixt_ti_l64_p16_120e_in1k.py'
custom_imports = dict(imports=['projects.ablations'], allow_failed_imports=False)

# The latents attend to the tokens, then the tokens to the updated latents. Without biases it has
# the 15.92 M parameters of the paper.
model = dict(backbone=dict(type='mmbixt.BiXTAblation', attention='sequential', qkv_bias=False))
