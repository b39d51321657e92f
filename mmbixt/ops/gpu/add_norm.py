"""A residual connection and the layer norm after it: one kernel forward, one backward."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mmbixt.ops.gpu.launch import Launch, programs_for, refuse_derivatives, sum_parts, tile_of


@triton.jit
def _forward(
    x, update, bias, scale, kept, weight, shift,
    out, normed, mean, rstd,
    rows, tokens, eps,
    C: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    is_column, is_row = column < C, row < rows
    inside = is_row & is_column
    place = row.to(tl.int64) * C + column
    value = tl.load(update + place, inside, 0.0).to(tl.float32)
    if bias is not None:
        value += tl.load(bias + column, is_column, 0.0).to(tl.float32)
    if scale is not None:
        value *= tl.load(scale + column, is_column, 0.0).to(tl.float32)
    if kept is not None:
        value *= tl.load(kept + row // tokens, is_row, 0.0).to(tl.float32)
    value += tl.load(x + place, inside, 0.0).to(tl.float32)
    value = value.to(out.dtype.element_ty)
    tl.store(out + place, value, inside)

    value = value.to(tl.float32)  # rounded, as the backward pass reads it
    average = tl.sum(value, 1)[:, None] / C
    centred = tl.where(is_column, value - average, 0.0)
    inverse = tl.rsqrt(tl.sum(centred * centred, 1)[:, None] / C + eps)
    w = tl.load(weight + column, is_column, 0.0).to(tl.float32)
    b = tl.load(shift + column, is_column, 0.0).to(tl.float32)
    result = centred * inverse * w + b
    tl.store(normed + place, result.to(normed.dtype.element_ty), inside)
    tl.store(mean + row, average, is_row)
    tl.store(rstd + row, inverse, is_row)


@triton.jit
def _backward(
    out, mean, rstd, grad_out, grad_normed, weight, update, bias, scale, kept,
    grad_x, grad_update, parts,
    rows, tokens,
    C: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """With n = (out - mean) rstd and g = weight grad_normed, for each token::

        grad_x = grad_out + rstd (g - average(g) - n average(g n))

    and ``parts`` (programs,3 or 4,C): sums for the weight, the shift, the bias and the scale.
    """
    column = tl.arange(0, BLOCK)[None, :]
    is_column = column < C
    w = tl.load(weight + column, is_column, 0.0).to(tl.float32)
    sum_weight = tl.zeros([ROWS, BLOCK], tl.float32)
    sum_shift = tl.zeros([ROWS, BLOCK], tl.float32)
    sum_bias = tl.zeros([ROWS, BLOCK], tl.float32)
    sum_scale = tl.zeros([ROWS, BLOCK], tl.float32)
    start = tl.program_id(0) * ROWS
    while start < rows:
        row = start + tl.arange(0, ROWS)[:, None]
        is_row = row < rows
        inside = is_row & is_column
        place = row.to(tl.int64) * C + column
        average = tl.load(mean + row, is_row, 0.0)
        inverse = tl.load(rstd + row, is_row, 0.0)
        n = (tl.load(out + place, inside, 0.0).to(tl.float32) - average) * inverse
        grad = tl.load(grad_normed + place, inside, 0.0).to(tl.float32)
        sum_weight += grad * n
        sum_shift += grad
        grad *= w
        grad -= tl.sum(grad, 1)[:, None] / C + n * (tl.sum(grad * n, 1)[:, None] / C)
        grad *= inverse
        if grad_out is not None:
            grad += tl.load(grad_out + place, inside, 0.0).to(tl.float32)
        tl.store(grad_x + place, grad.to(grad_x.dtype.element_ty), inside)
        if kept is not None:
            grad *= tl.load(kept + row // tokens, is_row, 0.0).to(tl.float32)
        if scale is not None:
            value = tl.load(update + place, inside, 0.0).to(tl.float32)
            if bias is not None:
                value += tl.load(bias + column, is_column, 0.0).to(tl.float32)
            sum_scale += grad * value
            grad *= tl.load(scale + column, is_column, 0.0).to(tl.float32)
        if grad_update is not None:
            tl.store(grad_update + place, grad.to(grad_update.dtype.element_ty), inside)
        sum_bias += grad
        start += tl.num_programs(0) * ROWS
    count = 3 if scale is None else 4
    place = parts + tl.program_id(0) * count * C + tl.arange(0, BLOCK)
    is_column = tl.arange(0, BLOCK) < C
    tl.store(place, tl.sum(sum_weight, 0), is_column)
    tl.store(place + C, tl.sum(sum_shift, 0), is_column)
    tl.store(place + 2 * C, tl.sum(sum_bias, 0), is_column)
    if scale is not None:
        tl.store(place + 3 * C, tl.sum(sum_scale, 0), is_column)


# --- In torch -------------------------------------------------------------------------------------


def _results(
    x: Tensor, update: Tensor, bias: Tensor | None, scale: Tensor | None, *_: Tensor | float | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sum, its norm, and for the backward pass mean and 1 / deviation of each token."""
    dtype = torch.promote_types(x.dtype, update.dtype)
    dtype = dtype if scale is None else torch.promote_types(dtype, scale.dtype)
    out = torch.empty_like(x, dtype=dtype)
    mean, rstd = (x.new_empty(x.shape[:-1], dtype=torch.float32) for _ in range(2))
    return out, torch.empty_like(update), mean, rstd


def _launch(
    x: Tensor,
    update: Tensor,
    bias: Tensor | None,
    scale: Tensor | None,
    kept: Tensor | None,
    weight: Tensor,
    shift: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    inputs = (x, update, bias, scale, kept, weight, shift)
    results, (rows, tokens, sizes) = _results(*inputs), _sizes(x)
    if rows:
        with torch.cuda.device_of(x):
            grid = (triton.cdiv(rows, sizes['ROWS']),)
            _forward[grid](*inputs, *results, rows, tokens, eps, **sizes)
    return results


def _gradients(
    out: Tensor,
    mean: Tensor,
    rstd: Tensor,
    grad_out: Tensor | None,
    grad_normed: Tensor,
    weight: Tensor,
    update: Tensor | None,
    bias: Tensor | None,
    scale: Tensor | None,
    kept: Tensor | None,
    *dtypes: torch.dtype,
) -> list[Tensor]:
    """The parts of the sums, and the gradients of x and of the update, if they differ."""
    shape = (programs_for(mean.numel()), 3 if scale is None else 4, out.shape[-1])
    parts = out.new_empty(shape, dtype=torch.float32)
    is_same = scale is None and kept is None and dtypes[0] == dtypes[1]
    return [parts, *(torch.empty_like(out, dtype=dtype) for dtype in dtypes[: 2 - is_same])]


def _launch_backward(
    out: Tensor,
    mean: Tensor,
    rstd: Tensor,
    grad_out: Tensor | None,
    grad_normed: Tensor,
    weight: Tensor,
    update: Tensor | None,
    bias: Tensor | None,
    scale: Tensor | None,
    kept: Tensor | None,
    x_dtype: torch.dtype,
    update_dtype: torch.dtype,
) -> list[Tensor]:
    inputs = (out, mean, rstd, grad_out, grad_normed, weight, update, bias, scale, kept)
    results, (rows, tokens, sizes) = _gradients(*inputs, x_dtype, update_dtype), _sizes(out)
    parts, grad_x, grad_update = (*results, None)[:3]
    with torch.cuda.device_of(out):
        grid = (parts.shape[0],)
        _backward[grid](*inputs, grad_x, grad_update, parts, rows, tokens, **sizes)
    return results


def _sizes(x: Tensor) -> tuple[int, int, dict[str, int]]:
    """Tokens of all images, tokens of an image, and the sizes that a kernel is compiled for."""
    rows, columns = tile_of(x.shape[-1])
    sizes = dict(C=x.shape[-1], ROWS=rows, BLOCK=columns)
    return x.shape[:-1].numel(), x.shape[1:-1].numel(), sizes


_run = Launch('add_norm', _launch, _results)
_run_backward = Launch('add_norm_backward', _launch_backward, _gradients)


class AddNorm(torch.autograd.Function):
    """See :func:`mmbixt.ops.add_norm.add_norm`; x and the update are contiguous."""

    @staticmethod
    def forward(ctx, x, update, bias, scale, kept, weight, shift, eps):
        out, normed, mean, rstd = _run(x, update, bias, scale, kept, weight, shift, eps)
        for_scale = (None, None) if scale is None else (update, bias)
        ctx.save_for_backward(out, mean, rstd, weight, *for_scale, scale, kept)
        ctx.dtypes = [
            None if p is None else p.dtype for p in (x, update, weight, shift, bias, scale)
        ]
        ctx.set_materialize_grads(False)
        return out, normed

    @staticmethod
    def backward(ctx, grad_out: Tensor | None, grad_normed: Tensor | None):
        refuse_derivatives('add_norm')
        out, mean, rstd, *others = ctx.saved_tensors
        x_dtype, update_dtype, *dtypes = ctx.dtypes
        if grad_normed is None:
            grad_normed, dtypes[:2] = torch.zeros_like(out), (None, None)
        grads = (None if grad_out is None else grad_out.contiguous(), grad_normed.contiguous())
        parts, *grads = _run_backward(out, mean, rstd, *grads, *others, x_dtype, update_dtype)
        sums = zip(sum_parts(parts, others[0].dtype), dtypes, strict=False)
        sums = [None if dtype is None else x.to(dtype) for x, dtype in sums]
        grad_weight, grad_shift, grad_bias, grad_scale = (*sums, None)[:4]
        return grads[0], grads[-1], grad_bias, grad_scale, None, grad_weight, grad_shift, None
