import numpy as np

from mmbixt.evaluation.tables import headline

# mIoU as in Table 2 of the BiSA paper
SWIN = {'all/mIoU': 44.51, 'all/mAcc': 0, 'all/aAcc': np.nan, 'band5px/mIoU': 24.37}
BISA = {'all/mIoU': 45.11, 'all/mAcc': 1, 'all/aAcc': 1, 'band5px/mIoU': 24.80}
REST = {'band5px/mAcc': 40, 'band5px/aAcc': 50, 'boundary0.02/mIoU': 3}


def test_relative_gains_beside_each_other():
    lines = headline({'Swin': SWIN | REST, 'BiSA': BISA | REST}).splitlines()
    assert [line.split() for line in lines] == [
        ['All', 'Boundary', '(band5px)'],
        ['mIoU', 'mAcc', 'aAcc'] * 2,
        ['Swin', '44.51', '0.00', 'nan', '24.37', '40.00', '50.00'],
        ['BiSA', '45.11', '1.00', '1.00', '24.80', '40.00', '50.00'],
        ['gain', '+1.35%', '+nan%', '+nan%', '+1.76%', '+0.00%', '+0.00%'],
    ]
    assert len({len(line) for line in lines[1:]}) == 1


def test_without_bands():
    found = {name: score for name, score in BISA.items() if name.startswith('all')}
    lines = headline({'': found}).splitlines()
    assert [line.split() for line in lines] == [
        ['All'],
        ['mIoU', 'mAcc', 'aAcc'],
        ['45.11', '1.00', '1.00'],
    ]
