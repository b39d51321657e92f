_base_ = './upernet_xcit_s12_p8_ade20k.py'

model = dict(backbone=dict(arch='small24', init_cfg=dict(checkpoint='xcit://small24-p8-384-dist')))
