"""The MLP of a transformer block, a few hundred tokens at a time.

All steps are done on some tokens, whose hidden values stay in the cache of the processor, before
the next ones are touched. The scale is multiplied into the weights of the last layer.
The backward pass keeps the tokens and the hidden values before the GELU, and no others.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import gelu

from mmbixt.ops import dispatch
from mmbixt.ops.cpu.linear import multiply, outer_sum
from mmbixt.ops.cpu.operator import differentiate, like, operator
from mmbixt.ops.feed_forward.weights import FeedForwardWeights

aten = torch.ops.aten


def feed_forward_cpu(x: Tensor, weights: FeedForwardWeights, residual: bool = True) -> Tensor:
    """See :func:`mmbixt.ops.feed_forward`."""
    *layers, fc2_weight, fc2_bias, scale = weights
    if scale is not None:
        fc2_weight, fc2_bias = scale[:, None] * fc2_weight, scale * fc2_bias
    given = (x.contiguous().view(-1, x.shape[-1]), *layers, fc2_weight, fc2_bias)
    keep = dispatch.needs_gradients(*(t for t in given if isinstance(t, Tensor)))
    rows = max(1, dispatch.scores_at_once() // weights.fc1_weight.shape[0])
    return feed_forward(*given, residual, keep, rows)[0].view_as(x)


def _fake(x, norm_weight, norm_bias, eps, fc1_weight, fc1_bias, fc2_weight, fc2_bias, *options):
    _, keep, _ = options
    hidden = [x.new_empty(x.shape[0], width) for width in (fc1_weight.shape[0], 1, 1)]
    return [*like(x), *(hidden if keep else [])]


@operator(_fake)
def feed_forward(
    x: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    eps: float,
    fc1_weight: Tensor,
    fc1_bias: Tensor,
    fc2_weight: Tensor,
    fc2_bias: Tensor,
    residual: bool,
    keep: bool,
    rows: int,
) -> list[Tensor]:
    """Tokens (N,C) to (N,C), ``rows`` at a time.

    Returns:
        The result and, if asked to ``keep``, what the backward pass needs: the hidden values
        (N,hidden) before the GELU, and the mean and reciprocal deviation (N,1) of the norm.
    """
    out = torch.empty_like(x)
    kept = [x.new_empty(len(x), width) for width in (len(fc1_weight), 1, 1)] if keep else []
    for chunk in _chunks(x, rows):
        tokens = x[chunk]
        normed, *moments = aten.native_layer_norm(
            tokens, tokens.shape[-1:], norm_weight, norm_bias, eps
        )
        hidden = multiply(normed, fc1_weight, fc1_bias, out=kept[0][chunk] if keep else None)
        for whole, part in zip(kept[1:], moments, strict=keep):
            whole[chunk] = part
        part = multiply(gelu(hidden), fc2_weight, fc2_bias, out=out[chunk])
        if residual:
            part += tokens
    return [out, *kept]


def _fake_backward(grad, x, norm_weight, norm_bias, eps, fc1_weight, fc2_weight, *_):
    fc1, fc2 = ((weight, weight[:, 0]) for weight in (fc1_weight, fc2_weight))
    return like(x, norm_weight, norm_bias, *fc1, *fc2)


@operator(_fake_backward)
def feed_forward_backward(
    grad: Tensor,
    x: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    eps: float,
    fc1_weight: Tensor,
    fc2_weight: Tensor,
    hidden: Tensor,
    mean: Tensor,
    deviation: Tensor,
    residual: bool,
    rows: int,
) -> list[Tensor]:
    """The gradients of the tokens, then of the norm's and the layers' weights and biases."""
    grad_x = torch.empty_like(x)
    norm, sizes = (norm_weight, norm_bias), x.shape[-1:]
    sums: list[Tensor] = []  # the gradients of the weights
    for chunk in _chunks(x, rows):
        tokens, grad_out, before = x[chunk], grad[chunk], hidden[chunk]
        grad_fc2 = (outer_sum(grad_out, gelu(before)), grad_out.sum(0))
        grad_hidden = aten.gelu_backward(multiply(grad_out, fc2_weight.t()), before)
        normed = aten.native_layer_norm(tokens, sizes, *norm, eps)[0]
        grad_fc1 = (outer_sum(grad_hidden, normed), grad_hidden.sum(0))
        grad_normed = multiply(grad_hidden, fc1_weight.t())
        grad_tokens, *grad_norm = aten.native_layer_norm_backward(
            grad_normed, tokens, sizes, mean[chunk], deviation[chunk], *norm, [True, True, True]
        )
        if residual:
            torch.add(grad_tokens, grad_out, out=grad_x[chunk])
        else:
            grad_x[chunk] = grad_tokens
        parts = [*grad_norm, *grad_fc1, *grad_fc2]
        sums = [a.add_(b) for a, b in zip(sums, parts, strict=True)] if sums else parts
    return [grad_x, *sums]


def _chunks(x: Tensor, rows: int) -> Iterator[slice]:
    return (slice(start, start + rows) for start in range(0, len(x), rows))


def _save(inputs: tuple, output: list[Tensor]) -> tuple[tuple[Tensor, ...], tuple]:
    x, norm_weight, norm_bias, eps, fc1_weight, _, fc2_weight, _, residual, _, rows = inputs
    return (x, norm_weight, norm_bias, fc1_weight, fc2_weight, *output[1:]), (eps, residual, rows)


def _gradients(grads: list[Tensor], saved: tuple[Tensor, ...], kept: tuple, _) -> tuple:
    (x, norm_weight, norm_bias, *others), (eps, residual, rows) = saved, kept
    grad_x, grad_norm_weight, grad_norm_bias, *grad_mlp = feed_forward_backward(
        grads[0].contiguous(), x, norm_weight, norm_bias, eps, *others, residual, rows
    )
    return grad_x, grad_norm_weight, grad_norm_bias, None, *grad_mlp, None, None, None


differentiate(feed_forward, _save, _gradients)
