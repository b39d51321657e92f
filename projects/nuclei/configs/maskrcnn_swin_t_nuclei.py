_base_ = './maskrcnn_bisa_swin_t_nuclei.py'

# the baseline: a plain Swin
model = dict(backbone=dict(bisa_stages=()))
