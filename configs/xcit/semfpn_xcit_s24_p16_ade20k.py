_base_ = './semfpn_xcit_s12_p16_ade20k.py'

model = dict(backbone=dict(arch='small24', init_cfg=dict(checkpoint='xcit://small24-p16-384-dist')))
