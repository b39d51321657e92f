_base_ = './semfpn_bisa_swin_t_camvid.py'

# the baseline: a plain Swin
model = dict(backbone=dict(bisa_stages=()))
