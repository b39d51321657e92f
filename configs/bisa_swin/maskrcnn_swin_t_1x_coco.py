_base_ = './maskrcnn_bisa_swin_t_1x_coco.py'

# The baseline: a plain Swin Transformer, without inverse self-attention.
model = dict(backbone=dict(bisa_stages=()))
