_base_ = './semfpn_bisa_swin_t_ade20k.py'

# The baseline: a plain Swin Transformer, without inverse self-attention.
model = dict(backbone=dict(bisa_stages=()))
