_base_ = './maskrcnn_xcit_s12_p8_3x_coco.py'

model = dict(backbone=dict(arch='small24', init_cfg=dict(checkpoint='xcit://small24-p8-384-dist')))
