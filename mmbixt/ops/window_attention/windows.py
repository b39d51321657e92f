"""Square windows of a feature map, shifted or not: their tokens and the scores of these."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmbixt.ops.dispatch import holds, is_eager, on_processor, operator_refusal
from mmbixt.ops.padding import padding_to_multiple


class Windows(NamedTuple):
    """How feature maps, of T tokens in total, are cut into windows, of P places in total.

    Places without a token are padding.

    Attributes:
        token: (P,) the token at each place, in the order of the feature maps; T for padding.
        place: (T,) the place of each token.
        shape: (B,H,W) of the feature maps.
        size: side of a window.
        padding: (P-T,) the places of the padding; None on a processor, where they are not used.
    """

    token: Tensor
    place: Tensor
    shape: tuple[int, int, int]
    size: int
    padding: Tensor | None

    @classmethod
    def of(cls, x: Tensor, size: int, shift: int) -> 'Windows':
        """The windows of (B,H,W,C), shifted cyclically to the right and down by ``shift`` cells."""
        batch, height, width = x.shape[:3]
        count = batch * height * width
        is_known = is_eager()  # exporters cannot pad by a size; by 0, which is added to later
        first, fill = (0, count) if is_known else (-count, 0)
        token = torch.arange(first, first + count, device=x.device).view(batch, height, width)
        bottom, right = (padding_to_multiple(side, size) for side in (height, width))
        token = _roll(pad(token, (0, right, 0, bottom), value=fill), shift)
        rows, columns = ((height + bottom) // size, (width + right) // size)
        token = token.unflatten(2, (columns, size)).unflatten(1, (rows, size))
        token = token.transpose(2, 3).flatten()
        token = token if is_known else token + count
        if on_processor(x):
            place = torch.zeros(count + 1, dtype=torch.long, device=x.device)
            place.scatter_(0, token, torch.arange(token.shape[0], device=x.device))
            place, padding = place[:-1], None
        else:
            place, padding = token.argsort().tensor_split((count,))
        return cls(token, place, (batch, height, width), size, padding)

    @property
    def per_map(self) -> int:
        rows, columns = (
            (side + padding_to_multiple(side, self.size)) // self.size for side in self.shape[1:]
        )
        return rows * columns

    def cut(self, x: Tensor, fill: Tensor | None = None) -> Tensor:
        """(B,H,W,C) to (B,windows,size*size,C), with ``fill`` (C,) or zeros at the padding."""
        if fill is not None:
            fill = fill.to(x.dtype)  # under autocast x is in half precision
        x = _reorder(x.flatten(0, 2), self.token, self.place, self.padding, True, fill)
        return x.unflatten(0, (self.shape[0], self.per_map, self.size**2))

    def join(self, x: Tensor) -> Tensor:
        """The inverse of :meth:`cut`, (B,windows,size*size,C) to (B,H,W,C), without the padding."""
        out = _reorder(x.flatten(0, 2), self.place, self.token, self.padding, False)
        return out.unflatten(0, self.shape)

    def join_heads(self, x: Tensor) -> Tensor:
        """(B,windows,h,size*size,d) to (B,H,W,h,d), in one copy; not for processors."""
        heads, tokens = x.shape[2:4]
        head = torch.arange(heads, device=x.device)

        def rows(place: Tensor) -> Tensor:
            first = place + place.div(tokens, rounding_mode='floor') * (tokens * (heads - 1))
            return (first[:, None] + tokens * head).flatten()

        token = self.token.view(-1, 1, tokens) * heads + head[:, None]
        index = rows(self.place), token.flatten(), rows(self.padding)
        return _reorder(x.flatten(0, 3), *index, False).unflatten(0, (*self.shape, heads))


def _roll(token: Tensor, shift: int | torch.SymInt) -> Tensor:
    """(B,H,W) shifted cyclically to the left and up."""
    if isinstance(shift, int):
        return token.roll((-shift, -shift), dims=(1, 2))
    for dim in (1, 2):  # ONNX has no roll by a size
        index = torch.arange(token.shape[dim], device=token.device) + shift
        index = torch.where(index >= token.shape[dim], index - token.shape[dim], index)
        token = token.index_select(dim, index)
    return token


def _reorder(
    x: Tensor,
    index: Tensor,
    inverse: Tensor,
    padding: Tensor | None,
    pads: bool,
    fill: Tensor | None = None,
) -> Tensor:
    if operator_refusal():
        return _select(x, index, 0.0 if fill is None else fill)
    return Reorder.apply(x, index, inverse, padding, pads, fill)


def _select(x: Tensor, index: Tensor, fill: Tensor | float) -> Tensor:
    """The rows of x (T,C) at an index (P,); if P > T, ``fill`` where the index is T."""
    if holds(index.shape[0] <= x.shape[0]):
        return x.index_select(0, index)
    out = x.index_select(0, index.clamp_max(x.shape[0] - 1))
    return torch.where(index[:, None] == x.shape[0], fill, out)


def _move(
    x: Tensor,
    index: Tensor,
    inverse: Tensor,
    padding: Tensor | None,
    pads: bool,
    fill: Tensor | None = None,
) -> Tensor:
    """:func:`_select` in fewer passes: row i of x goes to ``inverse[i]``; ``fill`` may be None.

    ``pads`` is False where padding is taken away, which the sizes of a compiled program, symbols,
    do not show.
    """
    if not pads or holds(index.shape[0] <= x.shape[0]):
        return x.index_select(0, index)
    shape = index.shape[0], x.shape[1]
    is_compiled = torch.compiler.is_dynamo_compiling()
    if is_compiled or padding is None or fill is not None:
        filled = x.new_zeros(shape) if fill is None else fill.repeat(shape[0], 1)
        # Dynamo (of torch 2.11) loses the gradient in place
        return (filled.index_copy if is_compiled else filled.index_copy_)(0, inverse, x)
    return x.new_empty(shape).index_copy_(0, inverse, x).index_fill_(0, padding, 0)


class Reorder(torch.autograd.Function):
    """A permutation of rows, with padding; its gradient is the inverse one, without sums."""

    @staticmethod
    def forward(
        ctx,
        x: Tensor,
        index: Tensor,
        inverse: Tensor,
        padding: Tensor | None,
        pads: bool,
        fill: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(index, inverse, padding)
        ctx.pads = pads
        return _move(x, index, inverse, padding, pads, fill)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        index, inverse, padding = ctx.saved_tensors
        grad_fill = None
        if ctx.needs_input_grad[5]:
            grad_fill = (grad * (index == inverse.shape[0])[:, None]).sum(0)
        grad_x = _move(grad, inverse, index, padding, not ctx.pads)
        return grad_x, None, None, None, None, grad_fill


class Scores(NamedTuple):
    """``scale * q k + table[index] + mask``.

    Attributes:
        scale: of the products of queries and keys.
        table: (positions,h), learned, one row for each relative position of two tokens.
        index: (N,N), the row of the table for each pair of tokens of a window.
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
        """The bias of relative positions, (h,N,N)."""
        return self.table[self.index].permute(2, 0, 1)

    def bias(self) -> Tensor:
        """Relative positions plus the mask, (h,N,N) or (windows of a feature map,h,N,N)."""
        return self.positions() if self.mask is None else self.positions() + self.mask
