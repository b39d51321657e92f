_base_ = './biformer_s_in1k.py'

# This size is not in the authors' release. Its drop path is not known: this is that of BiFormer-S.
model = dict(
    backbone=dict(arch='base'),
    neck=dict(in_channels=768),
    head=dict(in_channels=768),
)
