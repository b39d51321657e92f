"""Stochastic depth: images that are skipped are dropped, and nothing else changes."""

import pytest
import torch
from torch import nn

from mmbixt.layers import DropPath, residual


def run(rate, batch, skips, training=True):
    """The output, and the gradients of the input and the weights."""
    torch.manual_seed(1)
    branch, x = nn.Linear(4, 4), torch.randn(batch, 3, 4, requires_grad=True)
    calls = []
    branch.register_forward_hook(lambda _, inputs, out: calls.append(len(out)))
    out = residual(x, branch, DropPath(rate, skips).train(training))
    gradients = torch.autograd.grad(out.sin().sum(), [x, *branch.parameters()])
    return [out.detach(), *gradients], calls[0]


@pytest.mark.parametrize('batch', [1, 8, 16])
@pytest.mark.parametrize('rate', [0.0, 0.05, 0.4, 1 - 1e-7])
@pytest.mark.parametrize('training', [True, False])
def test_skipped_images_are_those_that_would_be_dropped(rate, batch, training):
    expected, images = run(rate, batch, False, training)
    found, computed = run(rate, batch, True, training)
    assert images == batch
    if training and batch >= 8 and 0.1 < rate < 0.9:
        assert computed < batch
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
    if rate == 0 or not training:
        torch.testing.assert_close(found[0], run(0.0, batch, False)[0][0])


def test_the_mean_stays():
    drop_path = DropPath(0.4)
    out = drop_path(torch.ones(20000, 1, 2))
    assert out.unique().tolist() == [0, pytest.approx(1 / 0.6)]
    assert (out[..., 0] == out[..., 1]).all()
    assert out.mean() == pytest.approx(1, abs=0.02)
