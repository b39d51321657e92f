_base_ = './bixt_ti_iter_sa1_d22_120e_in1k.py'
model = dict(backbone=dict(depth=12, self_attentions=4))
