_base_ = './retinanet_biformer_s_1x_coco.py'

# no recipe is published for this size; this is the recipe of S
model = dict(backbone=dict(arch='tiny', init_cfg=dict(checkpoint='biformer://tiny')))
