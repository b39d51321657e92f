"""The MLP of Swin computes its GELU again; its gradients are those of plain layers."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from mmbixt.layers import FeedForward

CALLS = {
    'called': lambda mlp, x: mlp(x),
    'checkpointed': lambda mlp, x: checkpoint(mlp, x, use_reentrant=False),
    # the module has its own weights again in the backward pass
    'other weights': lambda mlp, x: functional_call(
        mlp, {name: p + 0 for name, p in mlp.named_parameters()}, (x,)
    ),
}


def gradients(mlp, call):
    torch.manual_seed(0)
    x = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(call(mlp, x).sin().sum(), [x, *mlp.parameters()])


def plain(mlp):
    mlp = copy.deepcopy(mlp)
    mlp.layers = nn.Sequential(*mlp.layers)
    return mlp


@pytest.mark.parametrize('call', CALLS.values(), ids=CALLS)
@pytest.mark.parametrize('is_changed_in_place', [False, True])
def test_gradients_are_those_of_plain_layers(call, is_changed_in_place):
    mlp = FeedForward(6, 24).double()
    if is_changed_in_place:
        mlp.layers[1] = nn.Sequential(nn.Hardtanh(-0.1, 0.1, inplace=True), mlp.layers[1])
    expected = gradients(plain(mlp), CALLS['called'])
    for found, wanted in zip(gradients(mlp, call), expected, strict=True):
        torch.testing.assert_close(found, wanted)


def test_second_derivatives():
    mlp = FeedForward(3, 5).double()
    assert torch.autograd.gradgradcheck(mlp, torch.randn(2, 3).double().requires_grad_())
