"""Square windows of a feature map, shifted or not: which token is where, how they are scored."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmbixt.ops.dispatch import holds, operator_refusal
from mmbixt.ops.padding import padding_to_multiple


class Windows(NamedTuple):
    """How feature maps of T tokens in all are cut into windows of P places in all.

    Where no whole window fits, windows have places without a token: padding.

    Attributes:
        token: (P,) the token at each place, in the order of the feature maps; T for padding.
        place: (T,) the place of each token.
        shape: (B,H,W) of the feature maps.
        size: side of a window.
    """

    token: Tensor
    place: Tensor
    shape: tuple[int, int, int]
    size: int

    @classmethod
    def of(cls, x: Tensor, size: int, shift: int) -> 'Windows':
        """Of feature maps (B,H,W,C); the shift moves windows right and down, around the edges."""
        batch, height, width = x.shape[:3]
        count = batch * height * width
        token = torch.arange(-count, 0, device=x.device).view(batch, height, width)
        bottom, right = (padding_to_multiple(side, size) for side in (height, width))
        token = _roll(pad(token, (0, right, 0, bottom)), shift)
        rows, columns = ((height + bottom) // size, (width + right) // size)
        token = token.unflatten(2, (columns, size)).unflatten(1, (rows, size))
        token = token.transpose(2, 3).flatten() + count  # padded with zeros: of exporters, too
        place = torch.zeros(count + 1, dtype=torch.long, device=x.device)
        place.scatter_(0, token, torch.arange(token.shape[0], device=x.device))
        return cls(token, place[:-1], (batch, height, width), size)

    @property
    def per_map(self) -> int:
        rows, columns = (
            (side + padding_to_multiple(side, self.size)) // self.size for side in self.shape[1:]
        )
        return rows * columns

    def cut(self, x: Tensor, fill: Tensor | None = None) -> Tensor:
        """(B,H,W,C) to (B,windows,size*size,C), with ``fill`` (C,) or zeros at the padding."""
        if fill is not None:
            fill = fill.to(x.dtype)  # autocast: what is projected is half
        x = _reorder(x.flatten(0, 2), self.token, self.place, fill)
        return x.unflatten(0, (self.shape[0], self.per_map, self.size**2))

    def join(self, x: Tensor) -> Tensor:
        """Back again, (B,windows,size*size,C) to (B,H,W,C); what is at the padding is dropped."""
        return _reorder(x.flatten(0, 2), self.place, self.token).unflatten(0, self.shape)


def _roll(token: Tensor, shift: int | torch.SymInt) -> Tensor:
    """(B,H,W) moved left and up, around the edges."""
    if isinstance(shift, int):
        return token.roll((-shift, -shift), dims=(1, 2))
    for dim in (1, 2):  # ONNX rolls by numbers alone
        index = torch.arange(token.shape[dim], device=token.device) + shift
        index = torch.where(index >= token.shape[dim], index - token.shape[dim], index)
        token = token.index_select(dim, index)
    return token


def _reorder(x: Tensor, index: Tensor, inverse: Tensor, fill: Tensor | None = None) -> Tensor:
    if operator_refusal():
        return _select(x, index, 0.0 if fill is None else fill)
    return Reorder.apply(x, index, inverse, fill)


def _select(x: Tensor, index: Tensor, fill: Tensor | float) -> Tensor:
    """Rows of x (T,C) in a new order (P,); if those are more, ``fill`` where the index is T."""
    if holds(index.shape[0] <= x.shape[0]):
        return x.index_select(0, index)
    out = x.index_select(0, index.clamp_max(x.shape[0] - 1))
    return torch.where(index[:, None] == x.shape[0], fill, out)


def _move(x: Tensor, index: Tensor, inverse: Tensor) -> Tensor:
    """The same with zeros, written once; row i goes to ``inverse[i]``."""
    if holds(index.shape[0] <= x.shape[0]):
        return x.index_select(0, index)
    return x.new_zeros(index.shape[0], x.shape[1]).index_copy_(0, inverse, x)


class Reorder(torch.autograd.Function):
    """Each row goes to one place, so its gradient comes from there: nothing is to be added up."""

    @staticmethod
    def forward(ctx, x: Tensor, index: Tensor, inverse: Tensor, fill: Tensor | None) -> Tensor:
        ctx.save_for_backward(index, inverse)
        return _move(x, index, inverse) if fill is None else _select(x, index, fill)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        index, inverse = ctx.saved_tensors
        grad_fill = None
        if ctx.needs_input_grad[3]:
            grad_fill = (grad * (index == inverse.shape[0])[:, None]).sum(0)
        return _move(grad, inverse, index), None, None, grad_fill


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
