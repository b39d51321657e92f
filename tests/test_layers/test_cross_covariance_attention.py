import pytest
import torch
from helpers import golden
from reference import fill

from mmbixt.layers import CrossCovarianceAttention
from mmbixt.ops import use_ops


@pytest.mark.parametrize('path', ['auto', 'reference', 'portable', 'cpu'])
def test_golden(path):
    attention = fill.fill_module(CrossCovarianceAttention(192, num_heads=4))
    with torch.no_grad(), use_ops(path):
        out = attention(torch.from_numpy(fill.tensor((1, 150, 192), 3)))
    assert golden('xcit_xca').check('out', out.numpy()) < 2e-5
