_base_ = './retinanet_biformer_s_1x_coco.py'

# no recipe is published for this size: S's
model = dict(backbone=dict(arch='tiny', init_cfg=dict(checkpoint='biformer://tiny')))
