_base_ = './upernet_biformer_s_ade20k.py'

# no recipe is published for this size; this is the recipe of S
model = dict(backbone=dict(arch='tiny', init_cfg=dict(checkpoint='biformer://tiny')))
