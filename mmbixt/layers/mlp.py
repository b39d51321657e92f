"""MLPs of transformer blocks with the names of weights of three papers, and the layer scale."""

import torch
from torch import Tensor, nn


class Mlp(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, channels)

    def forward(self, x: Tensor) -> Tensor:
        """(...,C) to (...,C)."""
        return self.fc2(self.act(self.fc1(x)))


class SequentialMlp(nn.Sequential):
    """:class:`Mlp` with BiFormer's names of weights."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__(nn.Linear(channels, hidden), nn.GELU())
        self.add_module('3', nn.Linear(hidden, channels))


class FeedForward(nn.Module):
    """:class:`Mlp` with the names of weights of OpenMMLab's Swin Transformer."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        first = nn.Sequential(nn.Linear(channels, hidden), nn.GELU())
        self.layers = nn.Sequential(first, nn.Linear(hidden, channels))

    def forward(self, x: Tensor) -> Tensor:
        """(...,C) to (...,C)."""
        return self.layers(x)


class LayerScale(nn.Module):
    """A learned factor of each channel, which scales the update of a residual connection."""

    def __init__(self, channels: int, init: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((channels,), float(init)))

    def forward(self, x: Tensor) -> Tensor:
        """(...,C) to (...,C)."""
        return x * self.gamma
