"""An attention layer in a forward pass, and the choice of its heads."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn


class Layer(NamedTuple):
    """An attention layer in a forward pass of one image."""

    name: str  # '7', or '2.5' for block 5 of stage 2, or 'class.1'
    module: nn.Module  # the attention
    inputs: tuple  # arguments of its forward
    stride: int  # pixels of the inputs from one cell of its feature map to the next
    grid: tuple[int, int]  # (H',W') of its feature map
    heads: Sequence[int] | None = None  # to draw; None for the default
    all_latents: bool = False  # of BiXT, instead of a few

    def mean_of_heads(self, maps: Tensor) -> Tensor:
        """The mean over the chosen heads of maps (h,...), or over all."""
        return (maps if self.heads is None else maps[list(self.heads)]).mean(0)

    @property
    def text_of_heads(self) -> str:
        if self.heads is None:
            return 'mean of the heads'
        numbers = ', '.join(map(str, self.heads))
        return f'mean of heads {numbers}' if len(self.heads) > 1 else f'head {numbers}'
