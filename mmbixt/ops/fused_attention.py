"""Torch's fused attention, with a clear error for second derivatives, which it does not have."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mmbixt.ops.dispatch import ADVICE, is_eager, is_transformed, needs_gradients, on_processor
from mmbixt.ops.precision import is_half


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None = None
) -> Tensor:
    """Queries (B,h,N,d), keys and values (B,h,M,d), and a mask or bias (B,h,N,M), to (B,h,N,d)."""
    if on_processor(k) and is_half(k) and needs_gradients(q, k, v):
        return _products(q, k, v, scale, mask)
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    # Fused kernels have such names; where torch composes plain operations, all derivatives exist.
    if is_eager() and not is_transformed() and 'ScaledDotProduct' in type(out.grad_fn).__name__:
        out.grad_fn.register_hook(_end_of_derivatives)
    return out


def _products(q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None) -> Tensor:
    """The same by matrix products that keep the weights for the backward pass.

    The fused kernel for processors computes the weights again in its backward pass. On an AMD EPYC
    it did not add up the scores in the order of its forward pass: with scores of a million, weights
    were up to 1.5. For attention within windows that pass also took ten times as long.
    """
    scores = scale * q @ k.transpose(-2, -1)
    if mask is not None:
        is_bias = mask.dtype != torch.bool
        scores = scores + mask if is_bias else scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(dim=-1) @ v


def _end_of_derivatives(grads: tuple[Tensor | None, ...], _: object):
    """The gradients that a fused kernel returns; differentiating these raises an error."""
    if not torch.is_grad_enabled():  # the usual backward pass, without create_graph
        return None
    return tuple(x if x is None else _Last.apply(x) for x in grads)


class _Last(torch.autograd.Function):
    @staticmethod
    def forward(ctx, grad: Tensor) -> Tensor:
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        raise RuntimeError(f'The backward pass of fused attention has no derivatives. {ADVICE}')
