_base_ = './bixt_ti_cnv_l64_p16_in1k.py'

# "+LPI" of the paper: XCiT's local patch interaction with the convolutional tokeniser (B.3)
model = dict(backbone=dict(token_refiner='lpi'))
