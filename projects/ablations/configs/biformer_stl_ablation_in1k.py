_base_ = '../../../configs/biformer/biformer_stl_in1k.py'
custom_imports = dict(imports=['projects.ablations'], allow_failed_imports=False)

model = dict(backbone=dict(type='mmbixt.BiFormerAblation'))
