_base_ = './maskrcnn_bisa_swin_t_1x_coco.py'

# the baseline: the same without inverse self-attention, a plain Swin Transformer
model = dict(backbone=dict(bisa_stages=()))
