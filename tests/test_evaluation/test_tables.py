from mmbixt.evaluation.tables import headline

# Table 2 of the BiSA paper
SWIN = {'all/mIoU': 44.51, 'all/mAcc': 0, 'all/aAcc': 2, 'band5px/mIoU': 24.37}
BISA = {'all/mIoU': 45.11, 'all/mAcc': 1, 'all/aAcc': 1, 'band5px/mIoU': 24.80}
REST = {'band5px/mAcc': 40, 'band5px/aAcc': 50}


def test_relative_gains():
    *_, bisa, gains = headline({'Swin': SWIN | REST, 'BiSA': BISA | REST}).splitlines()
    assert bisa.split() == ['BiSA', '45.11', '1.00', '1.00', '24.80', '40.00', '50.00']
    assert gains.split() == ['gain', '+1.35%', '+nan%', '-50.00%', '+1.76%', '+0.00%', '+0.00%']
