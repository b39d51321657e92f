"""Attention within windows, some windows at a time, from tokens to tokens.

The queries, keys, values and scores of a few windows stay in the cache of the processor until they
are used; feature maps are never cut into windows as a whole. Inverse attention averages its values
within windows with the same scores, in the same loop. The backward pass keeps the tokens and the
attention matrices.

Where a mask is -100, as Swin's, weights are about exp(-100): less than the smallest normal number
of float32. With such subnormal numbers processors take 4 to 90 times as long for a softmax, its
backward pass or a product, so they are set to 0.
"""

from math import log

import torch
from torch import Tensor

from mmbixt.ops.cpu.operator import Operator, Results
from mmbixt.ops.cpu.window_slots import Slots
from mmbixt.ops.dispatch import needs_gradients
from mmbixt.ops.inverse_attention.bilinear import bilinear
from mmbixt.ops.inverse_attention.reference import Inverse
from mmbixt.ops.window_attention.windows import Scores, Windows

AXES = (-1, -2)  # the softmax of values is over the keys, that of v_hat over the queries


def window_attention_cpu(qkv: Tensor, fill: Tensor, windows: Windows, scores: Scores) -> Tensor:
    return _attend(qkv, fill, None, windows, scores)[0]


def bidirectional_window_attention_cpu(
    qkv: Tensor, fill: Tensor, inverse: Inverse, windows: Windows, scores: Scores
) -> tuple[Tensor, Tensor]:
    plain, pooled = _attend(qkv, fill, inverse.v_hat, windows, scores)
    pooled, q_hat = (x.unflatten(-1, (scores.heads, -1)) for x in (pooled, inverse.q_hat))
    return plain, bilinear(pooled, q_hat, inverse.G).flatten(-2)


def _attend(
    qkv: Tensor, fill: Tensor, v_hat: Tensor | None, windows: Windows, scores: Scores
) -> list[Tensor]:
    """Feature maps (B,H,W,3C) and, if it is given, (B,H,W,C) to as many (B,H,W,C)."""
    outputs = attend_in_windows(
        qkv.flatten(0, 2),
        None if v_hat is None else v_hat.flatten(0, 2),
        fill,
        Slots.of(qkv, windows, scores.heads),
        scores,
        needs_gradients(qkv, v_hat, fill, scores.table),
    )
    return [out.unflatten(0, windows.shape) for out in outputs]


def _forward(
    qkv: Tensor, v_hat: Tensor | None, fill: Tensor, slots: Slots, scores: Scores, keep: bool
) -> Results:
    """Tokens of all feature maps, one after another.

    Args:
        qkv: queries, keys and values (T,3C).
        v_hat: (T,C), what is averaged with the weights that sum to one over the queries; or None.
        fill: queries, keys and values (3C,) of the padding.
        slots: which token is where.
        scores: how queries and keys become scores.
        keep: whether the attention is kept for the backward pass.

    Returns:
        The weighted sums of the values and, if it is given, of ``v_hat``, (T,C) each; and the
        attention matrices of both, (windows*h,N,N) each.
    """
    index, mask = scores.index, scores.mask
    bias = scores.table.t().index_select(1, index.flatten()).view(-1, *index.shape)
    outputs = [slots.buffer(1, x)[0] for x in (qkv, v_hat) if x is not None]
    kept = [qkv.new_empty(len(out), *index.shape) for out in outputs if keep]
    period = len(slots.token) if mask is None else len(mask)
    for chunk, rows in slots.chunks(period):
        q, k, *values = slots.cut_all(qkv, v_hat, fill, chunk)
        products = torch.bmm(q, k.transpose(1, 2)).unflatten(0, (-1, slots.heads))
        torch.add(bias, products, alpha=scores.scale, out=products)
        if mask is not None:
            first = chunk.start % period
            _hide(products, mask[first : first + len(products)])
        products = products.flatten(0, 1)
        for i, value in enumerate(values):
            attention = kept[i][rows] if keep else None
            attention = torch.softmax(products, AXES[i], out=attention)
            if mask is not None:
                _set_up_to(attention, torch.finfo(attention.dtype).tiny, 0.0)
            torch.bmm(attention, value, out=outputs[i][rows])
    return [slots.join(out[None]) for out in outputs], kept


def _hide(scores: Tensor, mask: Tensor) -> None:
    """Add a mask (n,1,N,N) to scores (n,h,N,N), and hide what would get a subnormal weight.

    A weight is at most exp(score - max) with the largest score of its row, or column. That is no
    less than the score on the diagonal, so than the least score and the least mask there.
    """
    least = float(scores.min() + mask.diagonal(dim1=-2, dim2=-1).min())
    scores += mask
    _set_up_to(scores, least + log(torch.finfo(scores.dtype).tiny), -torch.inf)


def _set_up_to(x: Tensor, limit: float, value: float) -> None:
    """Set all that is no larger than ``limit``, but not NaN, to ``value``."""
    torch.ops.aten.threshold.out(x, limit, value, out=x)


def _backward(grads, kept, qkv, v_hat, fill, slots, scores, keep) -> list[Tensor]:
    """The gradients of ``qkv``, ``v_hat`` (if it is given), ``fill`` and the table."""
    grads = [grad.contiguous() for grad in grads]
    grad_qkv, grad_v_hat = slots.buffer(3, qkv), slots.buffer(len(grads) - 1, qkv)
    grad_values = [grad_qkv[2], *grad_v_hat]
    table, index = scores.table, scores.index
    grad_bias = table.new_zeros(slots.heads, *index.shape)
    for chunk, rows in slots.chunks(len(slots.token)):
        q, k, *values = slots.cut_all(qkv, v_hat, fill, chunk)
        grad_products = None
        for i, value in enumerate(values):
            attention, (given,) = kept[i][rows], slots.cut(grads[i], chunk)
            torch.bmm(attention.transpose(1, 2), given, out=grad_values[i][rows])
            part = torch.bmm(given, value.transpose(1, 2))
            part = torch._softmax_backward_data(part, attention, AXES[i], attention.dtype)
            grad_products = part if grad_products is None else grad_products.add_(part)
        grad_bias += grad_products.unflatten(0, (-1, slots.heads)).sum(0)
        grad_products *= scores.scale
        torch.bmm(grad_products, k, out=grad_qkv[0, rows])
        torch.bmm(grad_products.transpose(1, 2), q, out=grad_qkv[1, rows])
    grad_table = torch.zeros_like(table).index_add_(0, index.flatten(), grad_bias.flatten(1).t())
    grad_tokens = [slots.join(x) for x in (grad_qkv, grad_v_hat) if len(x)]
    return [*grad_tokens, slots.sum_of_padding(grad_qkv), grad_table]


def _fake(qkv, v_hat, fill, slots, scores, keep) -> Results:
    count = 1 if v_hat is None else 2
    attention = (slots.token.shape[0] * slots.heads, *scores.index.shape)
    outputs = [qkv.new_empty(qkv.shape[0], qkv.shape[1] // 3) for _ in range(count)]
    return outputs, [qkv.new_empty(attention) for _ in range(count if keep else 0)]


def _flops(qkv, v_hat, fill, slots, *_) -> int:
    """One product for the scores, one for each kind of values."""
    windows, places = slots.token
    product = 2 * windows * places**2 * (qkv[1] // 3)
    return product * (2 if v_hat is None else 3)


attend_in_windows = Operator(
    'attend_in_windows',
    _forward,
    _backward,
    fake=_fake,
    differentiable=('qkv', 'v_hat', 'fill', 'table'),
    flops=_flops,
)
