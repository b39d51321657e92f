"""Self-attention within square windows of a feature map, shifted or not (Swin).

For the tokens (N,d) of a window and a head, with a learned bias for each relative position::

    out = softmax(q k^T / sqrt(d) + bias, over keys) v                       (N,d)

The feature map is padded with zeros at the right and the bottom to whole windows, and shifted
cyclically. The zeros are tokens in the attention, as in the Swin Transformer's code. Tokens that
only the cyclic shift has made neighbours do not attend to each other.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mmbixt.layers.sizes import ceil_div, extend_to_multiple
from mmbixt.layers.softmax_attention import SelfAttention


class Windows(NamedTuple):
    """How feature maps (B,H,W,C) are cut into windows, after a shift to the left and up.

    Attributes:
        height, width: H and W.
        size: side of a window.
        shift: in cells.
    """

    height: int
    width: int
    size: int
    shift: int

    def cut(self, x: Tensor) -> Tensor:
        """(B,H,W,C) to (B,windows,N,C) with N = size * size."""
        x = extend_to_multiple(x, self.size)
        rows, columns = (side // self.size for side in x.shape[1:3])
        x = x.roll((-self.shift, -self.shift), dims=(1, 2)) if self.shift else x
        x = x.unflatten(2, (columns, self.size)).unflatten(1, (rows, self.size))
        return x.transpose(2, 3).flatten(3, 4).flatten(1, 2)

    def join(self, x: Tensor) -> Tensor:
        """The inverse of :meth:`cut`, (B,windows,N,C) to (B,H,W,C), without the padding."""
        rows, columns = (ceil_div(side, self.size) for side in (self.height, self.width))
        x = x.unflatten(2, (self.size, self.size)).unflatten(1, (rows, columns))
        x = x.transpose(2, 3).flatten(3, 4).flatten(1, 2)
        x = x.roll((self.shift, self.shift), dims=(1, 2)) if self.shift else x
        return x[:, : self.height, : self.width]

    def shift_bias(self, x: Tensor) -> Tensor | None:
        """What is added to the scores of shifted windows, (windows,1,N,N); None without a shift.

        0 for two tokens that are neighbours in the feature map, minus infinity where the shift
        joins opposite sides. Swin's code adds -100, with which hidden tokens get weights of about
        1e-44: such subnormal numbers take CPUs many times as long. The two differ in float32 only
        where a hidden score is more than about 85 above all others.
        """
        if self.shift == 0:
            return None

        def part(length: int) -> Tensor:
            padded = ceil_div(length, self.size) * self.size
            place = torch.arange(padded, device=x.device)
            return (place >= padded - self.size).long() + (place >= padded - self.shift).long()

        parts = 3 * part(self.height)[:, None] + part(self.width)[None, :]
        parts = self._replace(shift=0).cut(parts[None, :, :, None])[0, :, :, 0]  # (windows,N)
        apart = parts[:, None, :, None] != parts[:, None, None, :]
        return torch.zeros_like(apart, dtype=x.dtype).masked_fill(apart, -torch.inf)


class WindowAttention(SelfAttention):
    """Self-attention within square windows, with a learned bias for each relative position.

    A window of side ``window_size`` has N = window_size ** 2 tokens. ``options`` are for subclasses
    with another attention.
    """

    def __init__(self, channels: int, num_heads: int, window_size: int = 7, **options: Any) -> None:
        super().__init__(channels, num_heads, **options)
        self.relative_position_bias_table = nn.Parameter(
            torch.zeros((2 * window_size - 1) ** 2, num_heads)
        )
        # in the state dict, because OpenMMLab's Swin has it there
        self.register_buffer('relative_position_index', relative_position_index(window_size))

    def forward(
        self, x: Tensor, shift_bias: Tensor | None = None, windows: Windows | None = None
    ) -> Tensor:
        """Tokens of windows (...,N,C) to (...,N,C), or whole feature maps (B,H,W,C) to (B,H,W,C).

        Args:
            x: the tokens.
            shift_bias: is added to the scores, as the learned bias is; of a shape that broadcasts
                to (...,h,N,N). For feature maps :meth:`Windows.shift_bias`.
            windows: how feature maps are cut into windows; None if the tokens are in windows.
        """
        if windows is None:
            return self.proj(self.attend(x, self._bias(shift_bias)))
        # joined before the projection, which then has no padding to compute
        return self.proj(windows.join(self.attend(windows.cut(x), self._bias(shift_bias))))

    def _bias(self, shift_bias: Tensor | None) -> Tensor:
        """Relative positions plus the bias of shifted windows, (h,N,N) or (windows,h,N,N)."""
        bias = self.relative_position_bias_table[self.relative_position_index].permute(2, 0, 1)
        return bias if shift_bias is None else bias + shift_bias


def relative_position_index(window_size: int) -> Tensor:
    """The row of the bias table for each pair of tokens of a window, (N,N)."""
    side = torch.arange(window_size)
    cells = torch.cartesian_prod(side, side)  # (N,2), row by row
    down, right = (cells[:, None] - cells[None, :] + window_size - 1).unbind(-1)
    return down * (2 * window_size - 1) + right
