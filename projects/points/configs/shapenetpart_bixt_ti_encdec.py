_base_ = './shapenetpart_bixt_ti_naive.py'

# 512, 128, 32 and 8 anchors, before each of 4 layers, and a decoder, which lacks parts
# of PointMLP's (README.md)
model = dict(backbone=dict(depth=4, reductions=(4, 4, 4, 4), neighbours=32))
