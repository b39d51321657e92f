"""The MLP of Swin computes its GELU again; its gradients are those of plain layers."""

import copy

import torch
from torch import nn

from mmbixt.layers import FeedForward


def gradients(mlp):
    torch.manual_seed(0)
    x = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(mlp(x).sin().sum(), [x, *mlp.parameters()])


def test_gradients_are_those_of_plain_layers():
    mlp = FeedForward(6, 24).double()
    plain = copy.deepcopy(mlp)
    plain.layers = nn.Sequential(*plain.layers)
    torch.testing.assert_close(gradients(mlp), gradients(plain))
