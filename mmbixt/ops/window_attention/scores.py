"""What the scores of a window are made of, beside its queries and keys."""

from typing import NamedTuple

from torch import Tensor


class Scores(NamedTuple):
    """``scale * q k + table[index] + mask``.

    Attributes:
        scale: of the products of queries and keys.
        table: (positions,h), learned, of the relative positions that two tokens can have.
        index: (N,N), of each pair of a window's tokens the row of the table.
        mask: (windows of a feature map,1,N,N), finite and without a gradient, or None.
    """

    scale: float
    table: Tensor
    index: Tensor
    mask: Tensor | None = None

    @property
    def heads(self) -> int:
        return self.table.shape[1]

    def positions(self) -> Tensor:
        """What is added for relative positions, (h,N,N)."""
        return self.table[self.index].permute(2, 0, 1)

    def bias(self) -> Tensor:
        """All that is added, (h,N,N) or (windows of a feature map,h,N,N)."""
        return self.positions() if self.mask is None else self.positions() + self.mask
