"""Attention within windows, some windows at a time, from tokens to tokens.

The queries, keys, values and scores of those few windows are fetched, used and dropped while they
are in the cache of the processor; feature maps are never cut as a whole. What inverse attention has
to do within windows, averaging the values that it makes projections from, is done on the way, with
the same scores. The backward pass keeps the tokens and the attention.
"""

import torch
from torch import Tensor

from mmbixt.ops.cpu.operator import differentiate, like, operator
from mmbixt.ops.cpu.window_slots import Slots
from mmbixt.ops.dispatch import needs_gradients
from mmbixt.ops.inverse_attention.bilinear import bilinear
from mmbixt.ops.window_attention.scores import Scores
from mmbixt.ops.window_attention.windows import Windows

AXES = (-1, -2)  # what weights sum to one over: keys for values, queries for v_hat


def window_attention_cpu(qkv: Tensor, fill: Tensor, windows: Windows, scores: Scores) -> Tensor:
    """See :func:`mmbixt.ops.window_attention`."""
    return _attend(qkv, fill, None, windows, scores)[0]


def bidirectional_window_attention_cpu(
    qkv: Tensor,
    fill: Tensor,
    q_hat: Tensor,
    v_hat: Tensor,
    G: Tensor,
    windows: Windows,
    scores: Scores,
) -> tuple[Tensor, Tensor]:
    """See :func:`mmbixt.ops.bidirectional_window_attention`."""
    plain, pooled = _attend(qkv, fill, v_hat, windows, scores)
    pooled, q_hat = (x.unflatten(-1, (scores.heads, -1)) for x in (pooled, q_hat))
    return plain, bilinear(pooled, q_hat, G).flatten(-2)


def _attend(
    qkv: Tensor, fill: Tensor, v_hat: Tensor | None, windows: Windows, scores: Scores
) -> list[Tensor]:
    """Feature maps (B,H,W,3C) and, if it is given, (B,H,W,C) to as many (B,H,W,C)."""
    outputs = attend_in_windows(
        qkv.flatten(0, 2),
        None if v_hat is None else v_hat.flatten(0, 2),
        fill,
        windows.token.view(-1, windows.size**2),
        windows.place,
        scores.table,
        scores.index,
        scores.mask,
        scores.scale,
        needs_gradients(qkv, v_hat, fill, scores.table),
    )
    return [out.unflatten(0, windows.shape) for out in outputs[: 1 if v_hat is None else 2]]


def _fake(qkv, v_hat, fill, token, place, table, index, mask, scale, keep):
    count = 1 if v_hat is None else 2
    heads = token.shape[0] * table.shape[1]
    outputs = [qkv.new_empty(qkv.shape[0], qkv.shape[1] // 3) for _ in range(count)]
    return [*outputs, *(qkv.new_empty(heads, *index.shape) for _ in range(count) if keep)]


@operator(_fake)
def attend_in_windows(
    qkv: Tensor,
    v_hat: Tensor | None,
    fill: Tensor,
    token: Tensor,
    place: Tensor,
    table: Tensor,
    index: Tensor,
    mask: Tensor | None,
    scale: float,
    keep: bool,
) -> list[Tensor]:
    """Tokens of all feature maps, one after another.

    Args:
        qkv: queries, keys and values (T,3C).
        v_hat: (T,C), what is averaged with the weights that sum to one over the queries; or None.
        fill: queries, keys and values (3C,) of the padding.
        token: see :class:`Slots`, as ``place``.
        place: where each token is.
        table: see :class:`Scores`, as ``index``, ``mask`` and ``scale``.
        index: of the table's rows.
        mask: of shifted windows.
        scale: of products.
        keep: whether the attention is wanted, for the backward pass.

    Returns:
        What becomes of the values and, if it is given, of ``v_hat``, (T,C) each; then, if wanted,
        the attention of both, (windows*h,N,N) each.
    """
    slots = Slots.of(qkv, token, place, table)
    bias = table.t().index_select(1, index.flatten()).view(-1, *index.shape)
    outputs = [slots.room(1, x)[0] for x in (qkv, v_hat) if x is not None]
    kept = [qkv.new_empty(len(out), *index.shape) for out in outputs if keep]
    period = len(token) if mask is None else len(mask)
    for chunk, rows in slots.chunks(period):
        q, k, *values = slots.cut_all(qkv, v_hat, fill, chunk)
        scores = torch.bmm(q, k.transpose(1, 2)).unflatten(0, (-1, slots.heads))
        torch.add(bias, scores, alpha=scale, out=scores)
        if mask is not None:
            first = chunk.start % period
            scores += mask[first : first + len(scores)]
        scores = scores.flatten(0, 1)
        for i, value in enumerate(values):
            room = kept[i][rows] if keep else None
            torch.bmm(torch.softmax(scores, AXES[i], out=room), value, out=outputs[i][rows])
    return [*(slots.join(out[None]) for out in outputs), *kept]


def _fake_backward(grads, attentions, qkv, v_hat, fill, token, place, table, *_):
    return like(qkv, fill, table, *([] if v_hat is None else [v_hat]))


@operator(_fake_backward)
def attend_in_windows_backward(
    grads: list[Tensor],
    attentions: list[Tensor],
    qkv: Tensor,
    v_hat: Tensor | None,
    fill: Tensor,
    token: Tensor,
    place: Tensor,
    table: Tensor,
    index: Tensor,
    scale: float,
) -> list[Tensor]:
    """The gradients of ``qkv``, ``fill``, ``table`` and, if it is given, ``v_hat``."""
    slots = Slots.of(qkv, token, place, table)
    grad_qkv, grad_v_hat = slots.room(3, qkv), slots.room(1, qkv)[: len(grads) - 1]
    grad_values = [grad_qkv[2], *grad_v_hat]
    grad_bias = table.new_zeros(slots.heads, *index.shape)
    for chunk, rows in slots.chunks(len(token)):
        q, k, *values = slots.cut_all(qkv, v_hat, fill, chunk)
        grad_scores = None
        for i, value in enumerate(values):
            attention, (given,) = attentions[i][rows], slots.cut(grads[i], chunk)
            torch.bmm(attention.transpose(1, 2), given, out=grad_values[i][rows])
            part = torch.bmm(given, value.transpose(1, 2))
            part = torch._softmax_backward_data(part, attention, AXES[i], attention.dtype)
            grad_scores = part if grad_scores is None else grad_scores.add_(part)
        grad_bias += grad_scores.unflatten(0, (-1, slots.heads)).sum(0)
        grad_scores *= scale
        torch.bmm(grad_scores, k, out=grad_qkv[0, rows])
        torch.bmm(grad_scores.transpose(1, 2), q, out=grad_qkv[1, rows])
    grad_table = torch.zeros_like(table).index_add_(0, index.flatten(), grad_bias.flatten(1).t())
    inputs = [slots.join(grad_qkv), slots.sum_of_padding(grad_qkv), grad_table]
    return inputs if v_hat is None else [*inputs, slots.join(grad_v_hat)]


def _save(inputs: tuple, output: list[Tensor]) -> tuple[tuple[Tensor | None, ...], float]:
    *given, _, scale, _ = inputs
    return (*given, *output[1 if given[1] is None else 2 :]), scale


def _gradients(
    grads: list[Tensor], saved: tuple[Tensor | None, ...], scale: float, _
) -> tuple[Tensor | None, ...]:
    given, attentions = saved[:7], list(saved[7:])
    zeros = given[0].new_zeros(given[0].shape[0], given[0].shape[1] // 3)
    grads = [zeros if g is None else g.contiguous() for g in grads[: len(attentions)]]
    grad_qkv, grad_fill, grad_table, *grad_v_hat = attend_in_windows_backward(
        grads, attentions, *given, scale
    )
    grad_v_hat = grad_v_hat[0] if grad_v_hat else None
    return grad_qkv, grad_v_hat, grad_fill, None, None, grad_table, None, None, None, None


differentiate(attend_in_windows, _save, _gradients)
