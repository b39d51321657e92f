"""The MLP of a transformer block, a few hundred tokens at a time.

All steps are computed for some tokens, whose hidden values stay in the cache of the processor, and
then for the next. All use one buffer: new memory takes longer than a GELU. The weights of the last
layer are multiplied by the scale. Only the tokens and the hidden values before the GELU are kept
for the backward pass.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from mmbixt.ops import dispatch
from mmbixt.ops.cpu.linear import multiply, multiply_add, outer_sum
from mmbixt.ops.cpu.operator import Operator, Results, like
from mmbixt.ops.feed_forward.reference import FeedForwardWeights

aten = torch.ops.aten


def feed_forward_cpu(x: Tensor, weights: FeedForwardWeights, residual: bool) -> Tensor:
    if (scale := weights.scale) is not None:
        weights = weights._replace(
            fc2_weight=scale[:, None] * weights.fc2_weight,
            fc2_bias=scale * weights.fc2_bias,
            scale=None,
        )
    keep = dispatch.needs_gradients(x, *weights)
    rows = _rows_at_once(weights.fc1_weight.shape[0])
    tokens = x.contiguous().view(-1, x.shape[-1])
    return feed_forward(tokens, weights, residual, keep, rows, dispatch.is_eager())[0].view_as(x)


def _rows_at_once(hidden: int) -> int:
    """Tokens of all threads: for each as many as have 4 MB of hidden values, at least ``hidden``.

    With fewer rows, a product would spend most of its time on reading the weights.
    """
    return max(2 * dispatch.SCORES // hidden, hidden) * dispatch.threads()


def _forward(
    x: Tensor, weights: FeedForwardWeights, residual: bool, keep: bool, rows: int, in_pieces: bool
) -> Results:
    """Tokens (N,C) to (N,C), ``rows`` at a time.

    ``keep`` also returns the hidden values (N,hidden) before the GELU: in pieces, whose memory
    torch can reuse, or in one tensor, for compilers that do not know N.
    """
    w, out = weights, torch.empty_like(x)
    whole = x.new_empty(len(x), len(w.fc1_weight)) if keep and not in_pieces else None
    buffer = _buffer(x, w, rows)
    pieces = []
    for chunk in _chunks(x, rows):
        tokens = x[chunk]
        activated = buffer[: len(tokens)]
        place = whole[chunk] if whole is not None else None if keep else activated
        hidden = multiply(_norm(tokens, w)[0], w.fc1_weight, w.fc1_bias, out=place)
        aten.gelu.out(hidden, out=activated)
        if residual:
            torch.add(tokens, w.fc2_bias, out=out[chunk])
            multiply_add(activated, w.fc2_weight, out[chunk])
        else:
            multiply(activated, w.fc2_weight, w.fc2_bias, out=out[chunk])
        if keep and in_pieces:
            pieces.append(hidden)
    return [out], pieces if whole is None else [whole]


def _backward(grads, kept, x, weights, residual, keep, rows, in_pieces) -> list[Tensor]:
    """The gradients of the tokens, then of the norm's and the layers' weights and biases."""
    w, grad, grad_x = weights, grads[0].contiguous(), torch.empty_like(x)
    pieces = kept if in_pieces else kept[0].split(rows)
    buffer = _buffer(x, w, rows)
    sums: list[Tensor] = []  # the gradients of the weights
    for chunk, hidden in zip(_chunks(x, rows), pieces, strict=True):
        tokens, grad_out = x[chunk], grad[chunk]
        activated = aten.gelu.out(hidden, out=buffer[: len(tokens)])
        grad_fc2 = (outer_sum(grad_out, activated), grad_out.sum(0))
        grad_activated = multiply(grad_out, w.fc2_weight.t(), out=buffer[: len(tokens)])
        grad_hidden = aten.gelu_backward.grad_input(
            grad_activated, hidden, grad_input=grad_activated
        )
        normed, *moments = _norm(tokens, w)
        grad_fc1 = (outer_sum(grad_hidden, normed), grad_hidden.sum(0))
        grad_normed = multiply(grad_hidden, w.fc1_weight.t(), out=normed)
        norm = (x.shape[-1:], *moments, w.norm_weight, w.norm_bias, [True, True, True])
        grad_tokens, *grad_norm = aten.native_layer_norm_backward(grad_normed, tokens, *norm)
        if residual:
            torch.add(grad_tokens, grad_out, out=grad_x[chunk])
        else:
            grad_x[chunk] = grad_tokens
        parts = [*grad_norm, *grad_fc1, *grad_fc2]
        sums = [a.add_(b) for a, b in zip(sums, parts, strict=True)] if sums else parts
    return [grad_x, *sums]


def _buffer(x: Tensor, w: FeedForwardWeights, rows: int) -> Tensor:
    return x.new_empty(min(rows, len(x)), len(w.fc1_weight))


def _norm(x: Tensor, w: FeedForwardWeights) -> tuple[Tensor, Tensor, Tensor]:
    """Normed tokens, their means and reciprocal deviations."""
    return aten.native_layer_norm(x, x.shape[-1:], w.norm_weight, w.norm_bias, w.eps)


def _chunks(x: Tensor, rows: int) -> Iterator[slice]:
    return (slice(start, start + rows) for start in range(0, len(x), rows))


def _fake(x, weights, residual, keep, rows, in_pieces) -> Results:
    hidden = x.new_empty(x.shape[0], weights.fc1_weight.shape[0])
    if keep and in_pieces:
        return like(x), like(*hidden.split(rows))
    return like(x), [hidden] if keep else []


def _flops(x, weights, *_) -> int:
    (tokens, channels), (hidden, _) = x, weights.fc1_weight
    return 4 * tokens * channels * hidden


feed_forward = Operator(
    'feed_forward',
    _forward,
    _backward,
    fake=_fake,
    differentiable=('x', 'norm_weight', 'norm_bias', *FeedForwardWeights._fields[3:7]),
    flops=_flops,
)
