_base_ = './upernet_biformer_s_ade20k.py'

# No recipe is published for this size; this is the recipe of BiFormer-S.
model = dict(backbone=dict(arch='tiny', init_cfg=dict(checkpoint='biformer://tiny')))
