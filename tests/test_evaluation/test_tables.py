import numpy as np

from mmbixt.evaluation.tables import headline

# mIoU as in Table 2 of the BiSA paper
SWIN = {'all/mIoU': 44.51, 'all/mAcc': 0, 'all/aAcc': np.nan, 'band5px/mIoU': 24.37}
BISA = {'all/mIoU': 45.11, 'all/mAcc': 1, 'all/aAcc': 1, 'band5px/mIoU': 24.80}
REST = {'band5px/mAcc': 40, 'band5px/aAcc': 50, 'boundary0.02/mIoU': 3}


def test_relative_gains_beside_each_other_and_without_bands():
    lines = headline({'Swin': SWIN | REST, 'BiSA': BISA | REST}).splitlines()
    assert len({len(line) for line in lines[1:]}) == 1
    assert lines[0].split() == ['All', 'Boundary', '(band5px)']
    assert lines[3].split() == ['BiSA', '45.11', '1.00', '1.00', '24.80', '40.00', '50.00']
    assert lines[4].split() == ['gain', '+1.35%', '+nan%', '+nan%', '+1.76%', '+0.00%', '+0.00%']
    everywhere = {name: score for name, score in BISA.items() if name.startswith('all')}
    assert headline({'': everywhere}).split()[4:] == ['45.11', '1.00', '1.00']
