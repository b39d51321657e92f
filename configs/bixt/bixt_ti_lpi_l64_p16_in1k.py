_base_ = './bixt_ti_l64_p16_in1k.py'

# the paper's "+LPI"; its 1.7 G fit the linear tokeniser
model = dict(backbone=dict(token_refiner='lpi'))
