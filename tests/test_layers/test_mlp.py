"""The MLP of Swin computes its GELU again; its gradients are those of plain layers."""

import copy

import pytest
import torch
from torch import nn

from mmbixt.layers import FeedForward


def gradients(mlp):
    torch.manual_seed(0)
    x = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(mlp(x).sin().sum(), [x, *mlp.parameters()])


@pytest.mark.parametrize('is_changed_in_place', [False, True])
def test_gradients_are_those_of_plain_layers(is_changed_in_place):
    mlp = FeedForward(6, 24).double()
    if is_changed_in_place:
        mlp.layers[1] = nn.Sequential(nn.Hardtanh(-0.1, 0.1, inplace=True), mlp.layers[1])
    plain = copy.deepcopy(mlp)
    plain.layers = nn.Sequential(*plain.layers)
    torch.testing.assert_close(gradients(mlp), gradients(plain))


def test_second_derivatives():
    mlp = FeedForward(3, 5).double()
    assert torch.autograd.gradgradcheck(mlp, torch.randn(2, 3).double().requires_grad_())
