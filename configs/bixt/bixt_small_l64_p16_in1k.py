_base_ = './bixt_ti_l64_p16_300e_in1k.py'

model = dict(
    # Appendix B.1 has a drop path of 0.1 to 0.2 for this width
    backbone=dict(arch='small', drop_path_rate=0.1),
    neck=dict(in_channels=384),
    head=dict(in_channels=384),
)
