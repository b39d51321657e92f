_base_ = './bisa_swin_t_in1k.py'

model = dict(backbone=dict(bisa_stages=()))
