"""Cross-covariance attention without queries, keys or values of any token.

The correlations of all channels, and their norms, are functions of the tokens' Gram matrix, and
the output is the tokens times one matrix per image. So two products go over the tokens instead of
four, and the backward pass needs the tokens alone.
"""

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop

from mmbixt.ops.cross_covariance.reference import cross_covariance_attention_reference
from mmbixt.ops.precision import is_autocast


class CentredGram(torch.autograd.Function):
    """(B,N,C) to the Gram matrix of the tokens less their mean, (B,C,C).

    It is symmetric, so its backward pass is one product, not two; and the mean needs no gradient
    of its own, because the centred tokens add up to zero.
    """

    @staticmethod
    def forward(x: Tensor, mean: Tensor) -> Tensor:
        centred = x - mean
        return centred.transpose(1, 2) @ centred

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        x, mean = ctx.saved_tensors
        return (x - mean) @ (grad + grad.transpose(1, 2)), None


def pays(x: Tensor) -> bool:
    """Whether the Gram matrix is the cheaper way, and an exact one.

    With few tokens the products of (C,C) matrices cost more than they save. In half precision the
    Gram matrix would have to be summed in float32, which most hardware does more slowly.
    """
    half = is_autocast(x) or x.dtype in (torch.float16, torch.bfloat16)
    return x.shape[1] >= 2 * x.shape[2] and not half


def cross_covariance_attention_gram(
    x: Tensor,
    qkv_weight: Tensor,
    qkv_bias: Tensor | None,
    temperature: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    dropout: float = 0.0,
    scale: Tensor | None = None,
) -> Tensor:
    """See :func:`mmbixt.ops.cross_covariance_attention`."""
    weights = (qkv_weight, qkv_bias, temperature, proj_weight, proj_bias)
    if not pays(x):
        return cross_covariance_attention_reference(x, *weights, dropout, scale)
    if scale is not None:
        proj_weight, proj_bias = scale[:, None] * proj_weight, scale * proj_bias
    heads = len(temperature)
    query_key, values = qkv_weight.split((2 * x.shape[2], x.shape[2]))
    query_key_bias = value_bias = None
    if qkv_bias is not None:
        query_key_bias, value_bias = qkv_bias.split((2 * x.shape[2], x.shape[2]))
    attention = _attention(*_second_moments(x, query_key, query_key_bias, heads), temperature)
    attention = drop(attention, dropout)
    # what attention and output projection make of the value weights: one matrix per image
    mixed = proj_weight @ (attention @ values.unflatten(0, (heads, -1))).flatten(1, 2)
    constant = proj_bias.expand(len(x), -1)
    if value_bias is not None:
        constant = constant + (
            (attention @ value_bias.view(heads, -1, 1)).flatten(1) @ proj_weight.t()
        )
    return torch.baddbmm(constant[:, None], x, mixed.transpose(1, 2))


def _second_moments(
    x: Tensor, weight: Tensor, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor]:
    """Sums over the tokens of what the queries and keys would be.

    Spread and mean apart: both parts of a square are positive, so that no digits cancel where a
    mean, or a bias against it, is large beside the spread.

    Args:
        x: tokens (B,N,C).
        weight: (2C,C), rows of queries, then of keys.
        bias: (2C,) or None.
        heads: h.

    Returns:
        The squares of all queries and keys, (B,2,h,d), and the products of those of a head,
        (B,h,d,d).
    """
    mean = x.mean(1, keepdim=True)
    spread = weight @ CentredGram.apply(x, mean)  # (B,2C,C)
    means = mean[:, 0] @ weight.t()  # (B,2C)
    if bias is not None:
        means = means + bias
    squares = (spread * weight).sum(-1) + x.shape[1] * means.square()
    keys = weight.chunk(2)[1].unflatten(0, (heads, -1))
    products = spread[:, : len(weight) // 2].unflatten(1, (heads, -1)) @ keys.transpose(-2, -1)
    query_means, key_means = means.unflatten(1, (2, heads, -1)).unbind(1)  # (B,h,d)
    products = products + x.shape[1] * query_means[..., :, None] * key_means[..., None, :]
    return squares.unflatten(1, (2, heads, -1)), products


def _attention(squares: Tensor, products: Tensor, temperature: Tensor) -> Tensor:
    """(B,h,d,d), each row summing to one."""
    # at least 1e-12, as in torch.nn.functional.normalize
    query_norms, key_norms = squares.clamp_min(1e-24).sqrt().unbind(1)
    correlation = products / (query_norms[..., :, None] * key_norms[..., None, :])
    correlation = correlation.clamp(-1, 1)  # as it is but for rounding
    return (correlation * temperature).softmax(dim=-1)
