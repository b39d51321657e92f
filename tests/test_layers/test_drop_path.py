"""Stochastic depth."""

import pytest
import torch

from mmbixt.layers import DropPath


def test_the_mean_stays():
    drop_path = DropPath(0.4)
    out = drop_path(torch.ones(20000, 1, 2))
    assert out.unique().tolist() == [0, pytest.approx(1 / 0.6)]
    assert (out[..., 0] == out[..., 1]).all()
    assert out.mean() == pytest.approx(1, abs=0.02)
