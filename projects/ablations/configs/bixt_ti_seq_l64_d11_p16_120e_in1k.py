_base_ = './bixt_ti_seq_l64_p16_120e_in1k.py'

# with biases, as the paper's 14.60 M parameters
model = dict(backbone=dict(depth=10, qkv_bias=True))
