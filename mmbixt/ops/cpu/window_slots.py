"""Where the heads of each token are in feature maps and in windows: some windows at a time."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from mmbixt.ops.dispatch import scores_at_once
from mmbixt.ops.window_attention.windows import Windows


class Slots(NamedTuple):
    """The places of tokens in windows, and the windows of tokens.

    Attributes:
        token: (windows,N), the token at each place of a window; T for padding.
        place: (T,), the place of each token, counted through all windows.
        heads: h.
        d: width of a head.
    """

    token: Tensor
    place: Tensor
    heads: int
    d: int

    @classmethod
    def of(cls, qkv: Tensor, windows: Windows, heads: int) -> 'Slots':
        """Of queries, keys and values (...,3C)."""
        token = windows.token.view(-1, windows.size**2)
        return cls(token, windows.place, heads, qkv.shape[-1] // (3 * heads))

    @property
    def is_padded(self) -> bool:
        return self.token.numel() > self.place.numel()

    def chunks(self, period: int) -> Iterator[tuple[slice, slice]]:
        """Slices of the windows, whose scores stay in the cache, and of the heads in all windows.

        No slice crosses a multiple of ``period``, the number of windows that share a mask.
        """
        windows, places = self.token.shape
        step = max(1, scores_at_once() // (self.heads * places**2))
        for first in range(0, windows, period):
            for start in range(first, first + period, step):
                stop = min(start + step, first + period)
                yield slice(start, stop), slice(start * self.heads, stop * self.heads)

    def cut(self, x: Tensor, chunk: slice, fill: Tensor | None = None) -> Tensor:
        """Tokens (T,parts*C) to some windows (parts,n*h,N,d); ``fill`` or zeros at the padding."""
        token, count = self.token[chunk], len(self.place)
        width = x.shape[1] // self.d
        slot = torch.arange(width).view(-1, 1, self.heads, 1)
        inside = token.clamp_max(count - 1) if self.is_padded else token
        row = inside[:, None] * width + slot  # (parts,n,h,N)
        out = x.reshape(-1, self.d).index_select(0, row.flatten()).view(*row.shape, self.d)
        if self.is_padded and (padding := token == count).any():
            fill = 0.0 if fill is None else fill.view(-1, self.heads, self.d)
            out.permute(1, 3, 0, 2, 4)[padding] = fill
        return out.flatten(1, 2)

    def cut_all(
        self, qkv: Tensor, v_hat: Tensor | None, fill: Tensor, chunk: slice
    ) -> tuple[Tensor, ...]:
        """Queries, keys, values and, if it is given, ``v_hat`` of some windows, (n*h,N,d) each."""
        others = () if v_hat is None else self.cut(v_hat, chunk)
        return *self.cut(qkv, chunk, fill), *others

    def join(self, x: Tensor) -> Tensor:
        """All windows (parts,windows*h,N,d) to tokens (T,parts*C)."""
        windows, places = self.token.shape
        part = torch.arange(len(x)).view(-1, 1) * windows
        window = (self.place // places).view(-1, 1, 1)
        row = (part + window) * self.heads + torch.arange(self.heads)  # (T,parts,h)
        row = row * places + (self.place % places).view(-1, 1, 1)
        return x.view(-1, self.d).index_select(0, row.flatten()).view(len(row), -1)

    def sum_of_padding(self, x: Tensor) -> Tensor:
        """The sum over the padding of all windows (parts,windows*h,N,d), (parts*C,)."""
        if not self.is_padded:
            return x.new_zeros(len(x) * self.heads * self.d)
        padding = self.token == len(self.place)
        x = x.unflatten(1, (-1, self.heads)).permute(1, 3, 0, 2, 4)
        return x[padding].sum(0).flatten()

    def buffer(self, parts: int, like: Tensor) -> Tensor:
        """Empty, for results in all windows, (parts,windows*h,N,d)."""
        windows, places = self.token.shape
        return like.new_empty(parts, windows * self.heads, places, self.d)
