_base_ = './maskrcnn_biformer_s_1x_coco.py'

# No recipe is published for this size; this is the recipe of BiFormer-S.
model = dict(backbone=dict(arch='tiny', init_cfg=dict(checkpoint='biformer://tiny')))
