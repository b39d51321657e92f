"""Cross-covariance attention without queries, keys or values of any token.

The correlations of all channels, and their norms, are functions of the tokens' Gram matrix, and
the output is the tokens times one matrix per image. So two products go over the tokens instead of
four, and the backward pass needs the tokens alone.
"""

import torch
from torch import Tensor
from torch.nn.functional import dropout as drop

from mmbixt.ops.cross_covariance.reference import cross_covariance_attention_reference
from mmbixt.ops.linear import linear_of_each, outer_sums
from mmbixt.ops.precision import is_half


class CentredGram(torch.autograd.Function):
    """(B,N,C) to the Gram matrix of the tokens less their mean, (B,C,C).

    It is symmetric, so its backward pass is one product, not two; and the mean needs no gradient
    of its own, because the centred tokens add up to zero.
    """

    @staticmethod
    def forward(x: Tensor, mean: Tensor) -> Tensor:
        centred = x - mean
        return outer_sums(centred, centred)

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        x, mean = ctx.saved_tensors
        return linear_of_each(x - mean, grad + grad.transpose(1, 2)), None


def centred_gram(x: Tensor, mean: Tensor) -> Tensor:
    """:class:`CentredGram`, but for traced programs, which cannot be saved with it."""
    if torch.jit.is_tracing():
        return CentredGram.forward(x, mean)
    return CentredGram.apply(x, mean)


def pays(x: Tensor) -> bool:
    """Whether the Gram matrix is the cheaper way, and an exact one.

    With few tokens the products of (C,C) matrices cost more than they save. In half precision the
    Gram matrix would have to be summed in float32, which most hardware does more slowly.
    """
    return x.shape[1] >= 2 * x.shape[2] and not is_half(x)


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
    attention = drop(attention, dropout).unflatten(0, (len(x), heads))
    # what attention and output projection make of the value weights: one matrix per image
    mixed = (attention @ values.unflatten(0, (heads, -1))).flatten(1, 2)
    mixed = linear_of_each(proj_weight.expand(len(x), -1, -1), mixed.transpose(1, 2))
    constant = proj_bias.expand(len(x), -1)
    if value_bias is not None:
        constant = constant + (
            (attention @ value_bias.view(heads, -1, 1)).flatten(1) @ proj_weight.t()
        )
    return linear_of_each(x, mixed, constant)


def _second_moments(
    x: Tensor, weight: Tensor, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums over the tokens of what the queries and keys would be.

    Spread and mean apart: both parts of a square are positive, so that no digits cancel where a
    mean, or a bias against it, is large beside the spread.

    Images and heads are one dimension: tensors (B,h,d,d) would pass for maps with torch 2.11's
    inductor, which stores them channels-last beside convolutions, and then writes past their ends.

    Args:
        x: tokens (B,N,C).
        weight: (2C,C), rows of queries, then of keys.
        bias: (2C,) or None.
        heads: h.

    Returns:
        The squares of all queries and of all keys, (Bh,d) each, and the products of those of a
        head, (Bh,d,d).
    """
    mean = x.mean(1, keepdim=True)
    gram = centred_gram(x, mean)  # symmetric, its own transpose
    spread = linear_of_each(weight.expand(len(x), -1, -1), gram)  # (B,2C,C)
    means = mean[:, 0] @ weight.t()  # (B,2C)
    if bias is not None:
        means = means + bias
    squares = (spread * weight).sum(-1) + x.shape[1] * means.square()
    keys = weight.chunk(2)[1].unflatten(0, (heads, -1)).transpose(1, 2)  # (h,C,d)
    of_queries = spread.chunk(2, 1)[0].unflatten(1, (heads, -1))  # (B,h,d,C)
    products = (of_queries @ keys).flatten(0, 1)
    query_means, key_means = (m.reshape(len(products), -1) for m in means.chunk(2, 1))
    products = products + x.shape[1] * query_means[:, :, None] * key_means[:, None, :]
    query_squares, key_squares = (s.reshape(len(products), -1) for s in squares.chunk(2, 1))
    return query_squares, key_squares, products


def _attention(
    query_squares: Tensor, key_squares: Tensor, products: Tensor, temperature: Tensor
) -> Tensor:
    """(Bh,d,d), each row summing to one."""
    # at least 1e-12, as in torch.nn.functional.normalize
    query_norms, key_norms = (s.clamp_min(1e-24).sqrt() for s in (query_squares, key_squares))
    correlation = products / (query_norms[:, :, None] * key_norms[:, None, :])
    correlation = correlation.clamp(-1, 1)  # as it is but for rounding
    temperature = temperature.repeat(len(products) // len(temperature), 1, 1)
    return (correlation * temperature).softmax(dim=-1)
