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
    scores = attention_scores(q, k, scale, bias)
    pooled = scores.softmax(dim=-2) @ inverse.v_hat
    return scores.softmax(dim=-1) @ v, bilinear(pooled, inverse.q_hat, inverse.G)
