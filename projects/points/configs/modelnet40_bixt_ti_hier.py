_base_ = './modelnet40_bixt_ti_naive.py'

# 512, 256, 128 and 64 anchors, before each of 4 layers
model = dict(backbone=dict(depth=4, reductions=(2, 2, 2, 2), neighbours=24))
