_base_ = './semfpn_bisa_swin_t_ade20k.py'

# the baseline: the same without inverse self-attention, a plain Swin Transformer
model = dict(backbone=dict(bisa_stages=()))
