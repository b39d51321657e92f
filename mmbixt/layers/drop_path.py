"""Stochastic depth, by multiplying updates with zero or by computing only those that are kept."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

# below these, copying the kept images takes as much time as it saves
MIN_BATCH, MIN_RATE = 8, 0.1


class DropPath(nn.Module):
    """The update of a residual connection: zero for some images, scaled up for the others.

    Args:
        drop_prob: probability that an image gets no update.
        skips: whether :func:`residual` computes only the kept images of large batches.

    Attributes:
        keep_prob: None, or the probability that an image is updated, as a tensor without
            dimensions: then compiled layers of different rates share one program.
    """

    keep_prob: Tensor | None

    def __init__(self, drop_prob: float = 0.0, skips: bool = False) -> None:
        super().__init__()
        self.drop_prob = drop_prob
        self.skips = skips
        self.keep_prob = None  # no buffer: averages of models (EMA) pair buffers by their number

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
        return f'drop_prob={self.drop_prob}, skips={self.skips}'


def residual(x: Tensor, branch: Callable[[Tensor], Tensor], drop_path: nn.Module) -> Tensor:
    """``x + drop_path(branch(x))``, (B,...) to (B,...), of a branch that does not mix images.

    The images to compute are drawn on the CPU, so that the program does not wait for the GPU. Their
    number changes from step to step, so compiled programs compute all images.
    """
    skips = getattr(drop_path, 'skips', False) and drop_path.training
    if not skips or torch.compiler.is_compiling():
        return x + drop_path(branch(x))
    if drop_path.drop_prob < MIN_RATE or x.shape[0] < MIN_BATCH:
        return x + drop_path(branch(x))
    share = 1 - drop_path.drop_prob
    kept = torch.empty(x.shape[0], device='cpu').bernoulli_(share).nonzero().flatten()
    if len(kept) == 0:  # distributed training needs gradients of all weights: here zeros
        return x + 0 * branch(x)
    kept = kept.to(x.device, non_blocking=True)
    part = x.index_select(0, kept)
    part = part + branch(part) / share
    return x.to(part.dtype).index_copy(0, kept, part)
