_base_ = './semfpn_bixt_ti_ade20k.py'

# the paper's "+LPI": XCiT's local patch interaction on the tokens after each layer
model = dict(backbone=dict(token_refiner='lpi'))
