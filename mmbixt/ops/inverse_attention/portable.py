"""Inverse attention without a tensor for each pair of query and value.

The hypernetwork is linear in the values, so that these can be averaged before it, not after it:
``sum_j L[i,j] (v_hat[j] G) q_hat[i] = (sum_j L[i,j] v_hat[j]) G q_hat[i]``. This leaves one
bilinear product for each token, whose cost does not depend on the number of tokens that attend.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from mmbixt.ops.dispatch import on_processor, operator_refusal
from mmbixt.ops.fused_attention import fused_attention
from mmbixt.ops.inverse_attention.bilinear import bilinear
from mmbixt.ops.inverse_attention.reference import Inverse, attention_scores


def self_attention_portable(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None
) -> Tensor:
    if bias is None:
        return fused_attention(q, k, v, scale)
    batch = q.shape[:-3]
    if on_processor(q) or operator_refusal():
        bias = bias.to(q.dtype).expand(*batch, *q.shape[-3:-1], k.shape[-2])
        if on_processor(q):  # where the fused kernel accepts no broadcast bias
            bias = bias.contiguous()
        bias = bias.flatten(0, -4)
    else:
        bias = AlignedBias.apply(bias.to(q.dtype), batch)
    q, k, v = (x.flatten(0, -4) for x in (q, k, v))
    return fused_attention(q, k, v, scale, bias).unflatten(0, batch)


class AlignedBias(torch.autograd.Function):
    """A bias (...,h,N,N) for all groups of a batch, (groups,h,N,N), aligned for fused kernels.

    The distance of its rows in memory is a multiple of 8 numbers; otherwise torch would make a
    padded copy for all groups. The backward pass sums the gradient over the groups without a copy.
    """

    @staticmethod
    def forward(ctx, bias: Tensor, batch: tuple[int, ...]) -> Tensor:
        ctx.shapes = bias.shape, batch
        tokens = bias.shape[-1]
        rows = pad(bias, (0, -tokens % 8))
        rows = rows.expand(*batch, *rows.shape[-3:]).flatten(0, -4)
        return rows[..., :tokens]

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        shape, batch = ctx.shapes
        return grad.unflatten(0, batch).sum_to_size(shape), None


def bidirectional_self_attention_portable(
    q: Tensor, k: Tensor, v: Tensor, inverse: Inverse, scale: float, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    scores = shared_scores(q, k, scale, bias)
    pooled = scores.softmax(dim=-2) @ inverse.v_hat
    return scores.softmax(dim=-1) @ v, bilinear(pooled, inverse.q_hat, inverse.G)


def shared_scores(q: Tensor, k: Tensor, scale: float, bias: Tensor | None) -> Tensor:
    """:func:`attention_scores`, on a GPU with a product that scales and adds the bias."""
    is_plain = on_processor(q) or operator_refusal() or bias is None or bias.dtype != q.dtype
    return (attention_scores if is_plain else BiasedScores.apply)(q, k, scale, bias)


class BiasedScores(torch.autograd.Function):
    """``scale q k^T + bias``, rounded once; gradients are scaled within their products."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, scale: float, bias: Tensor) -> Tensor:
        scores = bias.expand(*q.shape[:-1], k.shape[-2]).clone(
            memory_format=torch.contiguous_format
        )
        q, k = (x.flatten(0, -3) for x in (q, k))
        ctx.save_for_backward(q, k)
        ctx.scale, ctx.bias = scale, bias.shape
        scores.flatten(0, -3).baddbmm_(q, k.transpose(1, 2), alpha=scale)
        return scores

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k = ctx.saved_tensors
        products = grad.flatten(0, -3)
        grad_q = _scaled_product(products, k, ctx.scale)
        grad_k = _scaled_product(products.transpose(1, 2), q, ctx.scale)
        grad_bias = grad.sum_to_size(ctx.bias) if ctx.needs_input_grad[3] else None
        grads = (x.unflatten(0, grad.shape[:-2]) for x in (grad_q, grad_k))
        return *grads, None, grad_bias


def _scaled_product(a: Tensor, b: Tensor, scale: float) -> Tensor:
    return torch.baddbmm(a.new_empty(1, 1, 1), a, b, beta=0, alpha=scale)
