"""A bilinear map of many pairs of vectors, in pieces that stay in the cache.

As one expression it writes the outer product of each pair to memory, d times the inputs, reads it
back for a matrix product, and keeps it for the backward pass. Here a piece of the outer products is
made in a small buffer, used, and overwritten by the next; the backward pass makes them again.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from mmbixt.ops.paths import calls_operators

# Numbers in the buffer: about what a core's cache holds; elsewhere, enough to keep a GPU busy.
_CPU_BUFFER = 2**19
_GPU_BUFFER = 2**26


def bilinear(left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
    """(...,a), (...,b) and a weight (a,b,c) to (...,c): ``sum_ab left[a] right[b] weight[a,b]``."""
    right, weight = right.to(left.dtype), weight.to(left.dtype)
    if not calls_operators() or left.device.type == 'meta':
        # as one expression: exporters know nothing of ours
        outer = left.unsqueeze(-1) * right.unsqueeze(-2)
        return outer.flatten(-2) @ weight.flatten(0, 1)
    out = bilinear_of_rows(left.flatten(0, -2), right.flatten(0, -2), weight)
    return out.unflatten(0, left.shape[:-1])


@torch.library.custom_op('mmbixt::bilinear', mutates_args=())
def bilinear_of_rows(left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
    """Left (T,a), right (T,b) and weight (a,b,c) to (T,c). An operator, for compilers to call."""
    matrix = weight.flatten(0, 1)
    out = left.new_empty(len(left), weight.shape[-1])
    for rows, outer in _outer_products(left, right):
        torch.mm(outer.flatten(1), matrix, out=out[rows])
    return out


@torch.library.custom_op('mmbixt::bilinear_backward', mutates_args=())
def bilinear_backward(
    grad: Tensor, left: Tensor, right: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of left, right and weight."""
    matrix = weight.flatten(0, 1)
    of_left, of_right = (x.new_empty(x.shape) for x in (left, right))
    # summed over the pieces, so not in half precision
    total = torch.zeros_like(matrix, dtype=torch.promote_types(matrix.dtype, torch.float32))
    for rows, outer in _outer_products(left, right):
        total += outer.flatten(1).t() @ grad[rows]
        of_outer = (grad[rows] @ matrix.t()).view_as(outer)
        torch.mul(of_outer, right[rows].unsqueeze(-2), out=outer)
        torch.sum(outer, -1, out=of_left[rows])
        torch.mul(of_outer, left[rows].unsqueeze(-1), out=outer)
        torch.sum(outer, -2, out=of_right[rows])
    return of_left, of_right, total.view(weight.shape).to(weight.dtype)


@bilinear_of_rows.register_fake
def _(left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
    return left.new_empty(len(left), weight.shape[-1])


@bilinear_backward.register_fake
def _(grad: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in inputs)


def _keep(ctx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _pass_back(ctx, grad: Tensor) -> tuple[Tensor, ...]:
    return bilinear_backward(grad, *ctx.saved_tensors)


bilinear_of_rows.register_autograd(_pass_back, setup_context=_keep)


def _outer_products(left: Tensor, right: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The outer products (n,a,b) of n rows after n rows, all in one buffer."""
    per_row = left.shape[-1] * right.shape[-1]
    step = max(1, (_CPU_BUFFER if left.device.type == 'cpu' else _GPU_BUFFER) // per_row)
    buffer = left.new_empty(min(step, len(left)), left.shape[-1], right.shape[-1])
    for start in range(0, len(left), step):
        rows = slice(start, start + step)
        outer = buffer[: len(left[rows])]
        torch.mul(left[rows].unsqueeze(-1), right[rows].unsqueeze(-2), out=outer)
        yield rows, outer
