_base_ = './bixt_ed256_l64_p16_in1k.py'

model = dict(backbone=dict(arch='d256-ls', patch_stride=8))
