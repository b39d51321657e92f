_base_ = '../../../configs/xcit/xcit_s12_p16_in1k.py'
custom_imports = dict(imports=['projects.ablations'], allow_failed_imports=False)

model = dict(backbone=dict(type='mmbixt.XCiTAblation'))
