"""Initial weights, as in the authors' code."""

import math

import torch
from torch import Tensor, nn


def init_linear(module: nn.Module) -> None:
    """The initialisation of XCiT, BiFormer and Swin, for ``network.apply``: linear layers only."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


@torch.no_grad()
def init_lecun_normal(weight: Tensor) -> None:
    """A normal distribution of variance ``1 / n`` for n inputs of each output, for BiXT.

    As in JAX, it is cut off at two standard deviations, and then scaled to that variance.
    """
    nn.init.trunc_normal_(weight)
    weight.mul_(math.sqrt(1 / weight[0].numel()) / 0.87962566103423978)
