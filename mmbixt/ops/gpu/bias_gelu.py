"""The bias of a linear layer and the GELU after it: one kernel forward, one backward."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mmbixt.ops.gpu.launch import TILE, Launch, programs_for, refuse_derivatives, sum_parts

BLOCK = 128  # columns of a tile
ROWS = TILE // BLOCK


@triton.jit
def _forward(x, bias, out, rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < width)
    place = row.to(tl.int64) * width + column
    value = tl.load(x + place, inside, 0.0).to(tl.float32)
    value += tl.load(bias + column, column < width, 0.0).to(tl.float32)
    value *= 0.5 * (1.0 + tl.erf(value * 0.7071067811865476))
    tl.store(out + place, value.to(out.dtype.element_ty), inside)


@triton.jit
def _backward(
    x, bias, grad_out, grad_x, parts, rows, width, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """``gelu'(v) = P(v) + v p(v)``, of the normal distribution P and its density p."""
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    b = tl.load(bias + column, column < width, 0.0).to(tl.float32)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    start = tl.program_id(0) * ROWS
    while start < rows:
        row = start + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (column < width)
        place = row.to(tl.int64) * width + column
        value = tl.load(x + place, inside, 0.0).to(tl.float32) + b
        slope = 0.5 * (1.0 + tl.erf(value * 0.7071067811865476))
        slope += value * tl.exp(-0.5 * value * value) * 0.3989422804014327
        grad = tl.load(grad_out + place, inside, 0.0).to(tl.float32) * slope
        tl.store(grad_x + place, grad.to(grad_x.dtype.element_ty), inside)
        total += grad
        start += tl.num_programs(0) * ROWS
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + tl.program_id(0) * width + place, tl.sum(total, 0), place < width)


def _result(x: Tensor, bias: Tensor) -> Tensor:
    return torch.empty_like(x)


def _launch(x: Tensor, bias: Tensor) -> Tensor:
    out, rows, width = _result(x, bias), x.shape[:-1].numel(), x.shape[-1]
    if x.numel():
        with torch.cuda.device_of(x):
            grid = (triton.cdiv(rows, ROWS), triton.cdiv(width, BLOCK))
            _forward[grid](x, bias, out, rows, width, ROWS=ROWS, BLOCK=BLOCK)
    return out


def _gradients(x: Tensor, bias: Tensor, grad_out: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of x, and the parts (programs,C) of its sum, which is the bias's."""
    programs = programs_for(x.shape[:-1].numel())
    return torch.empty_like(x), x.new_empty((programs, x.shape[-1]), dtype=torch.float32)


def _launch_backward(x: Tensor, bias: Tensor, grad_out: Tensor) -> tuple[Tensor, Tensor]:
    grad_x, parts = _gradients(x, bias, grad_out)
    rows, width = x.shape[:-1].numel(), x.shape[-1]
    with torch.cuda.device_of(x):
        grid = (parts.shape[0], triton.cdiv(width, BLOCK))
        _backward[grid](x, bias, grad_out, grad_x, parts, rows, width, ROWS=ROWS, BLOCK=BLOCK)
    return grad_x, parts


_run = Launch('bias_gelu', _launch, _result)
_run_backward = Launch('bias_gelu_backward', _launch_backward, _gradients)


class BiasGelu(torch.autograd.Function):
    """See :func:`mmbixt.ops.add_norm.bias_gelu`; x is contiguous."""

    @staticmethod
    def forward(ctx, x: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, bias)
        return _run(x, bias)

    @staticmethod
    def backward(ctx, grad_out: Tensor) -> tuple[Tensor, Tensor]:
        refuse_derivatives('bias_gelu')
        x, bias = ctx.saved_tensors
        grad_x, parts = _run_backward(x, bias, grad_out.contiguous())
        return grad_x, sum_parts(parts, bias.dtype)
