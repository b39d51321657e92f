_base_ = './_base_/tokens.py'

model = dict(backbone=dict(type='mmbixt.XCiT', arch='tiny12', patch_size=8))
