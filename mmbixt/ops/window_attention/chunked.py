"""Attention within windows, some windows at a time, from tokens to tokens.

The queries, keys, values and scores of those few windows are fetched, used and dropped while they
are in the cache of the processor; maps are never cut as a whole. What inverse attention has to do
within windows, averaging the values that it makes projections from, is done on the way, with the
same scores. The backward pass keeps the tokens and the attention.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mmbixt.ops.inverse_attention.bilinear import bilinear
from mmbixt.ops.paths import calls_operators, needs_gradients
from mmbixt.ops.precision import is_autocast
from mmbixt.ops.window_attention.reference import (
    bidirectional_window_attention_reference,
    window_attention_reference,
)
from mmbixt.ops.window_attention.scores import Scores
from mmbixt.ops.window_attention.slots import Slots
from mmbixt.ops.window_attention.windows import Windows

AXES = (-1, -2)  # what weights sum to one over: keys for values, queries for v_hat


def pays(qkv: Tensor) -> bool:
    """On a CPU, where memory is far and calls are cheap."""
    return (
        calls_operators()
        and qkv.device.type == 'cpu'
        and qkv.dtype in (torch.float32, torch.float64)
        and not is_autocast(qkv)
        and qkv.numel() > 0
    )


@torch.library.custom_op('mmbixt::window_attention', mutates_args=(), device_types='cpu')
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
    """Tokens of all maps, one after another. An operator, so that compilers call it as it is.

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


@torch.library.custom_op('mmbixt::window_attention_backward', mutates_args=(), device_types='cpu')
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
    of_qkv, of_v_hat = slots.room(3, qkv), slots.room(1, qkv)[: len(grads) - 1]
    of_values = [of_qkv[2], *of_v_hat]
    of_bias = table.new_zeros(slots.heads, *index.shape)
    for chunk, rows in slots.chunks(len(token)):
        q, k, *values = slots.cut_all(qkv, v_hat, fill, chunk)
        of_scores = None
        for i, value in enumerate(values):
            attention, (given,) = attentions[i][rows], slots.cut(grads[i], chunk)
            torch.bmm(attention.transpose(1, 2), given, out=of_values[i][rows])
            part = torch.bmm(given, value.transpose(1, 2))
            part = torch._softmax_backward_data(part, attention, AXES[i], attention.dtype)
            of_scores = part if of_scores is None else of_scores.add_(part)
        of_bias += of_scores.unflatten(0, (-1, slots.heads)).sum(0)
        of_scores *= scale
        torch.bmm(of_scores, k, out=of_qkv[0, rows])
        torch.bmm(of_scores.transpose(1, 2), q, out=of_qkv[1, rows])
    of_table = torch.zeros_like(table).index_add_(0, index.flatten(), of_bias.flatten(1).t())
    inputs = [slots.join(of_qkv), slots.sum_of_padding(of_qkv), of_table]
    return inputs if v_hat is None else [*inputs, slots.join(of_v_hat)]


@attend_in_windows.register_fake
def _(qkv, v_hat, fill, token, place, table, index, mask, scale, keep) -> list[Tensor]:
    outputs = [qkv.new_empty(len(qkv), qkv.shape[1] // 3) for x in (qkv, v_hat) if x is not None]
    heads = len(token) * table.shape[1]
    return [*outputs, *(qkv.new_empty(heads, *index.shape) for _ in outputs if keep)]


@attend_in_windows_backward.register_fake
def _(grads, attentions, qkv, v_hat, fill, token, place, table, index, scale) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in (qkv, fill, table, v_hat) if x is not None]


class ChunkedWindowAttention(torch.autograd.Function):
    """:func:`attend_in_windows`, whose arguments it takes, with its backward pass."""

    @staticmethod
    def forward(ctx, *inputs: Tensor | float | None) -> tuple[Tensor, ...]:
        *given, _, ctx.scale, keep = inputs
        found = attend_in_windows(*inputs)
        outputs = 1 if given[1] is None else 2
        if keep:
            ctx.save_for_backward(*given, *found[outputs:])
        return tuple(found[:outputs])

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # seven inputs, then the attention
        grads, attentions = [grad.contiguous() for grad in grads], list(saved[7:])
        of_qkv, of_fill, of_table, *of_v_hat = attend_in_windows_backward(
            grads, attentions, *saved[:7], ctx.scale
        )
        of_v_hat = of_v_hat[0] if of_v_hat else None
        return of_qkv, of_v_hat, of_fill, None, None, of_table, None, None, None, None


def window_attention_chunked(qkv: Tensor, fill: Tensor, windows: Windows, scores: Scores) -> Tensor:
    """See :func:`mmbixt.ops.window_attention`."""
    if not pays(qkv):
        return window_attention_reference(qkv, fill, windows, scores)
    return _attend(qkv, fill, None, windows, scores)[0]


def bidirectional_window_attention_chunked(
    qkv: Tensor,
    fill: Tensor,
    q_hat: Tensor,
    v_hat: Tensor,
    G: Tensor,
    windows: Windows,
    scores: Scores,
) -> tuple[Tensor, Tensor]:
    """See :func:`mmbixt.ops.bidirectional_window_attention`."""
    if not pays(qkv):
        return bidirectional_window_attention_reference(qkv, fill, q_hat, v_hat, G, windows, scores)
    plain, pooled = _attend(qkv, fill, v_hat, windows, scores)
    pooled, q_hat = (x.unflatten(-1, (scores.heads, -1)) for x in (pooled, q_hat))
    return plain, bilinear(pooled, q_hat, G).flatten(-2)


def _attend(
    qkv: Tensor, fill: Tensor, v_hat: Tensor | None, windows: Windows, scores: Scores
) -> tuple[Tensor, ...]:
    """Maps (B,H,W,3C) and, if it is given, (B,H,W,C) to as many (B,H,W,C)."""
    outputs = ChunkedWindowAttention.apply(
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
    return tuple(out.unflatten(0, windows.shape) for out in outputs)
