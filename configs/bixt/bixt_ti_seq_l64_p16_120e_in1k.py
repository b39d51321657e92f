_base_ = './bixt_ti_l64_p16_120e_in1k.py'

# the latents attend to the tokens, then the tokens to the updated latents
model = dict(backbone=dict(attention='sequential'))
