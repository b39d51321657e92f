"""Stochastic depth."""

import torch
from torch import Tensor, nn


class DropPath(nn.Module):
    """The update of a residual connection: zero for some images, scaled up for the others.

    Args:
        drop_prob: probability that an image gets no update.

    Attributes:
        keep_prob: the probability that an image is updated, as a tensor without dimensions, if
            compiled layers of different rates share one program; else None.
    """

    keep_prob: Tensor | None

    def __init__(self, drop_prob: float = 0.0) -> None:
        super().__init__()
        self.drop_prob = drop_prob
        self.keep_prob = None  # not a buffer, because mmengine's EMA pairs buffers by their order

    def forward(self, update: Tensor) -> Tensor:
        """(B,...) to (B,...)."""
        if not self.training or (self.keep_prob is None and self.drop_prob == 0):
            return update
        share = 1 - self.drop_prob if self.keep_prob is None else self.keep_prob
        keeps = update.new_empty(update.shape[0], *[1] * (update.dim() - 1)).bernoulli_(share)
        return update * (keeps / share)

    def share_program(self, device: torch.device) -> None:
        """Set ``keep_prob``, so that a compiler does not make a program for each rate."""
        self.keep_prob = torch.tensor(1 - self.drop_prob, device=device)

    def extra_repr(self) -> str:
        return f'drop_prob={self.drop_prob}'
