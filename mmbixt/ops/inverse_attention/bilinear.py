"""A bilinear product of many pairs of vectors, in blocks that stay in the cache.

One expression for all pairs would write their outer products to memory, which are d times as large
as the inputs, read them for a matrix product, and keep them for the backward pass. Here a block of
outer products is computed in a small buffer, used, and overwritten by the next block. The backward
pass computes the blocks again.
"""

from collections.abc import Iterator
from math import prod

import torch
from torch import Tensor

from mmbixt.ops.cpu.operator import Operator, Results, like
from mmbixt.ops.dispatch import on_processor, operator_refusal, scores_at_once, threads

_GPU_BUFFER = 2**27  # values in the buffer on a GPU: many, for few kernel calls


def bilinear(left: Tensor, right: Tensor, weight: Tensor) -> Tensor:
    """(...,a), (...,b) and a weight (a,b,c) to (...,c): ``sum_ab left[a] right[b] weight[a,b]``."""
    right, weight = right.to(left.dtype), weight.to(left.dtype)
    if operator_refusal():
        outer = left.unsqueeze(-1) * right.unsqueeze(-2)
        return outer.flatten(-2) @ weight.flatten(0, 1)
    (out,) = bilinear_of_rows(left.flatten(0, -2), right.flatten(0, -2), weight)
    return out.unflatten(0, left.shape[:-1])


def _forward(left: Tensor, right: Tensor, weight: Tensor) -> Results:
    """Left (T,a), right (T,b) and weight (a,b,c) to (T,c)."""
    matrix = weight.flatten(0, 1)
    out = left.new_empty(len(left), weight.shape[-1])
    for rows, outer in _outer_products(left, right):
        torch.mm(outer.flatten(1), matrix, out=out[rows])
    return [out], []


def _backward(grads, kept, left, right, weight) -> list[Tensor]:
    """The gradients of left, right and weight."""
    if not on_processor(left):
        return _backward_by_products(grads[0], left, right, weight)
    (grad,), matrix = grads, weight.flatten(0, 1)
    grad_left, grad_right = like(left, right)
    # (c,ab): MKL takes longer for its transpose. Summed over blocks, so not in half precision
    dtype = torch.promote_types(matrix.dtype, torch.float32)
    total = matrix.new_zeros(matrix.shape[::-1], dtype=dtype)
    for rows, outer in _outer_products(left, right):
        # One product for each thread, so that it has the same rows in its cache in each operation.
        parts = threads() if len(outer) % threads() == 0 else 1
        products, given = (x.unflatten(0, (parts, -1)) for x in (outer.flatten(1), grad[rows]))
        total += (given.mT @ products).sum(0)
        # the gradients of the outer products
        torch.bmm(given, matrix.t().expand(parts, -1, -1), out=products)
        # rows times matrices: MKL takes a multiple of the time for matrices times columns
        torch.bmm(right[rows].unsqueeze(1), outer.mT, out=grad_left[rows].unsqueeze(1))
        torch.bmm(left[rows].unsqueeze(1), outer, out=grad_right[rows].unsqueeze(1))
    grad_weight = total.t().contiguous().view(weight.shape)
    return [grad_left, grad_right, grad_weight.to(weight.dtype)]


def _backward_by_products(grad: Tensor, left: Tensor, right: Tensor, weight: Tensor):
    """:func:`_backward` in large matrix products: five passes over outer products, not seven."""
    grad_left, grad_right = like(left, right)
    by_left, by_right = weight.flatten(1), weight.transpose(0, 1).flatten(1)  # (a,bc) and (b,ac)
    total = weight.new_zeros(by_left.shape, dtype=torch.promote_types(weight.dtype, torch.float32))
    for rows, outer in _outer_products(right, grad):
        torch.mm(outer.flatten(1), by_left.t(), out=grad_left[rows])
        total += left[rows].t() @ outer.flatten(1)
    for rows, outer in _outer_products(left, grad):
        torch.mm(outer.flatten(1), by_right.t(), out=grad_right[rows])
    return [grad_left, grad_right, total.view(weight.shape).to(weight.dtype)]


def _outer_products(left: Tensor, right: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The outer products (n,a,b) for n rows at a time, with these rows, all in one buffer."""
    per_row = left.shape[-1] * right.shape[-1]
    step = max(1, (scores_at_once() if on_processor(left) else _GPU_BUFFER) // per_row)
    buffer = left.new_empty(min(step, len(left)), left.shape[-1], right.shape[-1])
    for start in range(0, len(left), step):
        rows = slice(start, start + step)
        outer = buffer[: len(left[rows])]
        torch.mul(left[rows].unsqueeze(-1), right[rows].unsqueeze(-2), out=outer)
        yield rows, outer


bilinear_of_rows = Operator(
    'bilinear_of_rows',
    _forward,
    _backward,
    fake=lambda left, right, weight: ([left.new_empty(left.shape[0], weight.shape[-1])], []),
    differentiable=('left', 'right', 'weight'),
    flops=lambda left, right, weight: 2 * left[0] * prod(weight),
    device_types=None,
)
