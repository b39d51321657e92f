_base_ = './modelnet40_bixt_ti_naive.py'

# 512 anchors with 24 neighbours each, before the first layer
model = dict(backbone=dict(reductions=(2,), neighbours=24))
