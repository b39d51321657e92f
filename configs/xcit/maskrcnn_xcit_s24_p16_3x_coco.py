_base_ = './maskrcnn_xcit_s12_p16_3x_coco.py'

model = dict(backbone=dict(arch='small24', init_cfg=dict(checkpoint='xcit://small24-p16-384-dist')))
