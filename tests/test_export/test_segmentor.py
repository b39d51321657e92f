import pytest
import torch
from torch import nn

from mmbixt.export.segmentor import Pooling


@pytest.mark.parametrize('cells', [1, 2, 3, 6])
@torch.no_grad()
def test_rewritten_pooling_is_the_same(cells):
    for size in ((7, 12), (3, 5), (16, 16)):
        x = torch.randn(2, 4, *size)
        expected = nn.AdaptiveAvgPool2d(cells)(x)
        torch.testing.assert_close(Pooling(cells)(x), expected)
