_base_ = './modelnet40_bixt_ti_naive.py'

# all 1024 points with 24 neighbours each, before the first layer
model = dict(backbone=dict(reductions=(1,), neighbours=24))
