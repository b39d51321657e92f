_base_ = './bixt_ti_l64_p16_in1k.py'

# "+LPI" with the linear tokeniser, whose operations fit the paper's 1.7 G. Its Appendix B.3 says
# the convolutional one: bixt_ti_cnv_lpi_l64_p16_in1k.
model = dict(backbone=dict(token_refiner='lpi'))
