"""Plain attention: torch's fused kernel, or products where that kernel must not be used."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mmbixt.layers.definition import is_by_definition
from mmbixt.layers.precision import half_dtype


def attention_scores(q: Tensor, k: Tensor, scale: float, bias: Tensor | None = None) -> Tensor:
    """``S = scale q k^T + bias``: (...,h,N,d) and (...,h,M,d) to (...,h,N,M)."""
    if bias is None:
        return scale * q @ k.transpose(-2, -1)
    rows = [x.flatten(0, -3) for x in (q, k)]
    bias = bias.to(q.dtype).expand(*q.shape[:-1], k.shape[-2]).flatten(0, -3)
    scores = torch.baddbmm(bias, rows[0], rows[1].transpose(1, 2), alpha=scale)
    return scores.unflatten(0, q.shape[:-2])


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None = None
) -> Tensor:
    """``softmax(scale q k^T + bias, over keys) v``.

    Args:
        q: (B,h,N,d).
        k, v: (B,h,M,d).
        scale: factor of the products.
        bias: None, or what is added to the scores, without a gradient; broadcasts to (B,h,N,M).

    Returns:
        (B,h,N,d).
    """
    if is_by_definition() or _is_inexact(q, k, v):
        return attention_scores(q, k, scale, bias).softmax(dim=-1) @ v
    if bias is not None:
        bias = bias.to(q.dtype)
    return scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def _is_inexact(*inputs: Tensor) -> bool:
    """Whether a backward pass may follow in half precision on a CPU.

    The backward pass of torch's fused kernel adds up the products of a score in another order than
    its forward pass: with scores of a million, it used attention weights of up to 1.5 (AMD EPYC).
    """
    needs_gradients = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    return needs_gradients and inputs[0].device.type == 'cpu' and half_dtype(inputs[0]) is not None


def biased_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None) -> Tensor:
    """:func:`fused_attention` with a learned bias: (...,h,N,d) to (...,h,N,d).

    The fused kernel for CPUs has no gradient for a bias.
    """
    if is_by_definition() or q.device.type == 'cpu':
        return attention_scores(q, k, scale, bias).softmax(dim=-1) @ v
    return fused_with_bias(q, k, v, scale, bias)


def fused_with_bias(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None) -> Tensor:
    """:func:`biased_attention` by the fused kernels of GPUs, which need four dimensions."""
    if bias is not None:
        bias = bias.to(q.dtype).expand(*q.shape[:-1], k.shape[-2]).flatten(0, -4)
    four = (x.flatten(0, -4) for x in (q, k, v))
    out = scaled_dot_product_attention(*four, attn_mask=bias, scale=scale)
    return out.unflatten(0, q.shape[:-3])
