import torch
from helpers import golden
from reference import fill

from mmbixt.layers import LocalPatchInteraction


def test_golden():
    lpi = fill.fill_module(LocalPatchInteraction(96)).eval()
    with torch.no_grad():
        output = lpi(torch.from_numpy(fill.tensor((1, 63, 96), 4)), (7, 9))
    assert golden('xcit_lpi').check('out', output.numpy()) < 2e-5
