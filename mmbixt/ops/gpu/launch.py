"""Common parts of the kernels: their sizes, and sums over all tokens in two steps."""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from mmbixt.ops.dispatch import ADVICE, is_eager

PROGRAMS = 256  # each sums over a part of the tokens: two on each multiprocessor of a large GPU
TILE = 1024  # values that a program reads at once, of each tensor


def tile_of(width: int) -> tuple[int, int]:
    """Rows and columns of a tile with whole rows: powers of two."""
    columns = triton.next_power_of_2(width)
    return max(TILE // columns, 1), columns


def programs_for(rows: int) -> int:
    """How many programs sum over the rows: each has 16 or more, if there are as many."""
    return max(min(PROGRAMS, triton.cdiv(rows, 16)), 1)


@triton.jit
def _sum_parts(parts, out, count, width, STEP: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros([STEP, BLOCK], tl.float32)
    start = 0
    while start < count:  # Triton's interpreter (3.6) cannot take the end of a range from a number
        part = start + tl.arange(0, STEP)[:, None]
        inside = (part < count) & (column < width)
        total += tl.load(parts + part * width + column, inside, 0.0)
        start += STEP
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, tl.sum(total, 0), place < width)


class Launch:
    """A function that launches a kernel, without derivatives.

    Compilers, and modes that watch operations, get an operator ``mmbixt::NAME``, whose results
    ``fake`` makes; else the function is called, which takes a tenth of the time.
    """

    def __init__(self, name: str, function: Callable, fake: Callable) -> None:
        self.function = function
        self.operator = torch.library.custom_op(f'mmbixt::{name}', function, mutates_args=())
        self.operator.register_fake(fake)

    def __call__(self, x: Tensor, *others: object) -> Any:
        is_called = is_eager() and not torch._C._len_torch_dispatch_stack()
        if is_called and type(x) in (Tensor, nn.Parameter) and x.device.type != 'meta':
            return self.function(x, *others)
        return self.operator(x, *others)


def refuse_derivatives(name: str) -> None:
    """Raise an error in a backward pass that is to be differentiated."""
    if is_eager() and torch.is_grad_enabled():
        raise RuntimeError(f'The backward pass of {name} has no derivatives. {ADVICE}')


def _empty_sum(parts: Tensor, dtype: torch.dtype) -> Tensor:
    return parts.new_empty(parts.shape[1:], dtype=dtype)


def _launch_sum(parts: Tensor, dtype: torch.dtype) -> Tensor:
    out = _empty_sum(parts, dtype)
    width = out.numel()
    with torch.cuda.device_of(parts):
        _sum_parts[(triton.cdiv(width, 64),)](parts, out, parts.shape[0], width, STEP=16, BLOCK=64)
    return out


# parts in float32 (parts,...), and a dtype, to their sum (...)
sum_parts = Launch('sum_parts', _launch_sum, _empty_sum)
