"""Inverse attention without a tensor per pair of query and value.

The hypernetwork is linear in the values, so they can be averaged before it rather than after:
``sum_j L[i,j] (v_hat[j] G) q_hat[i] = (sum_j L[i,j] v_hat[j]) G q_hat[i]``. What is left is one
bilinear product per token, whose cost does not depend on the number of tokens that attend.
"""

from torch import Tensor

from mmbixt.ops.fused_attention import fused_attention
from mmbixt.ops.inverse_attention.bilinear import bilinear
from mmbixt.ops.inverse_attention.reference import Inverse, attention_scores


def self_attention_portable(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None
) -> Tensor:
    if bias is None:
        return fused_attention(q, k, v, scale)
    batch = q.shape[:-3]
    bias = bias.to(q.dtype).expand(*batch, *q.shape[-3:-1], k.shape[-2])
    if q.device.type == 'cpu':  # where the fused kernel takes no broadcast one
        bias = bias.contiguous()
    q, k, v, bias = (x.flatten(0, -4) for x in (q, k, v, bias))
    return fused_attention(q, k, v, scale, bias).unflatten(0, batch)


def bidirectional_self_attention_portable(
    q: Tensor, k: Tensor, v: Tensor, inverse: Inverse, scale: float, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    scores = attention_scores(q, k, scale, bias)
    pooled = scores.softmax(dim=-2) @ inverse.v_hat
    return scores.softmax(dim=-1) @ v, bilinear(pooled, inverse.q_hat, inverse.G)
