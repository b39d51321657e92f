"""Cross-covariance attention without computing queries, keys or values.

For tokens ``X`` (N,C) of an image with mean ``m``, and projections with weights ``W`` and biases
``b``, attention needs only sums over the tokens of products of queries and keys,

    Q^T K = Wq S Wk^T + N (Wq m + bq)(Wk m + bk)^T,   S = (X - m)^T (X - m),

and in the same way the squares of their norms. With the attention ``A`` of all heads (block
diagonal) and the output projection ``Wo``, the output is the tokens times one matrix per image:

    X (Wo A Wv)^T + Wo A bv + bo.

There are two products with all tokens instead of four, and the backward pass needs only the tokens.
"""

import torch
from torch import Tensor

from mmbixt.ops.cross_covariance.reference import (
    CrossCovarianceWeights,
    cross_covariance_attention_reference,
)
from mmbixt.ops.dispatch import operator_refusal
from mmbixt.ops.linear import linear, linear_per_image, outer_sum_per_image
from mmbixt.ops.precision import half_dtype, is_half


class CentredGram(torch.autograd.Function):
    """``(x - mean)^T (x - mean)``: tokens (B,N,C) and their mean (B,1,C) to (B,C,C).

    The result is symmetric, so that the backward pass is one product, not two. The gradient of the
    mean is zero, because the centred tokens add up to zero.
    """

    @staticmethod
    def forward(x: Tensor, mean: Tensor) -> Tensor:
        centred = x - mean
        return outer_sum_per_image(centred, centred)

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        x, mean = ctx.saved_tensors
        return linear_per_image(x - mean, grad + grad.transpose(1, 2)), None


def centred_gram(x: Tensor, mean: Tensor) -> Tensor:
    """:class:`CentredGram`, or plain operations where it cannot be called."""
    if operator_refusal():
        centred = x - mean
        return centred.transpose(1, 2) @ centred
    return CentredGram.apply(x, mean)


def cross_covariance_attention_portable(x: Tensor, weights: CrossCovarianceWeights) -> Tensor:
    if half_dtype(x) == torch.float16:  # sums over all tokens need more
        return cross_covariance_attention_reference(x, weights)
    if is_half(x):  # sums of Gram matrices need float32
        return _with_tokens(x, weights)
    qkv_weight, qkv_bias, temperature, proj_weight, proj_bias, scale = weights
    if scale is not None:
        proj_weight, proj_bias = scale[:, None] * proj_weight, scale * proj_bias
    heads = temperature.shape[0]
    query_key, values = qkv_weight.split((2 * x.shape[2], x.shape[2]))
    query_key_bias = value_bias = None
    if qkv_bias is not None:
        query_key_bias, value_bias = qkv_bias.split((2 * x.shape[2], x.shape[2]))
    attention = _attention(*_second_moments(x, query_key, query_key_bias, heads), temperature)
    attention = attention.unflatten(0, (x.shape[0], heads))
    # (Wo A Wv)^T, one matrix per image
    mixed = (attention @ values.unflatten(0, (heads, -1))).flatten(1, 2)
    mixed = linear_per_image(proj_weight.expand(x.shape[0], -1, -1), mixed.transpose(1, 2))
    constant = proj_bias.expand(x.shape[0], -1)
    if value_bias is not None:
        mixed_bias = (attention @ value_bias.view(heads, -1, 1)).flatten(1)
        constant = constant + mixed_bias @ proj_weight.t()
    return linear_per_image(x, mixed, constant)


def _with_tokens(x: Tensor, weights: CrossCovarianceWeights) -> Tensor:
    """Computes queries, keys and values, but copies none of them.

    The products are divided by the norms, not the queries and keys; attention and output projection
    are multiplied to one matrix (C,C) per image, which the values are multiplied by.
    """
    qkv_weight, qkv_bias, temperature, proj_weight, proj_bias, scale = weights
    heads = len(temperature)
    may_apply = not operator_refusal()
    if scale is not None:
        scaled = ScaledWeights.apply if may_apply else _scaled_weights
        proj_weight, proj_bias = scaled(scale, proj_weight, proj_bias)
    queries_keys, values = linear(x, qkv_weight, qkv_bias).split((2 * x.shape[2], x.shape[2]), -1)
    factors, products = (Moments.apply if may_apply else _moments)(queries_keys, heads)
    query_factors, key_factors = factors.unflatten(1, (2, heads, -1)).unbind(1)
    scores = products * (temperature * query_factors[..., None]) * key_factors[:, :, None]
    attention = scores.softmax(dim=-1).to(values.dtype).permute(1, 2, 0, 3).flatten(2)  # (h,d,Bd)
    mixed = proj_weight.unflatten(1, (heads, -1)).transpose(0, 1) @ attention
    mixed = mixed.unflatten(2, (x.shape[0], -1)).permute(2, 1, 0, 3).flatten(2)  # (B,C,C)
    return linear_per_image(values, mixed, proj_bias[None])  # its gradient is rounded once


class Moments(torch.autograd.Function):
    """Queries and keys (B,N,2C) to ``1 / norm`` (B,2C) and their products for each head (B,h,d,d).

    Norms and products are over the tokens. The products are the diagonal blocks of the product of
    all channels (B,C,C), since one product for each head would copy the tokens. The backward pass
    is one product, too: queries and keys (B,N,2C) times a matrix (B,2C,2C).
    """

    @staticmethod
    def forward(ctx, queries_keys: Tensor, heads: int) -> tuple[Tensor, Tensor]:
        factors, products = _moments(queries_keys, heads)
        ctx.save_for_backward(queries_keys, factors)
        ctx.heads = heads
        return factors, products

    @staticmethod
    def backward(ctx, grad_factors: Tensor, grad_products: Tensor) -> tuple[Tensor, None]:
        queries_keys, factors = ctx.saved_tensors
        batch, width = factors.shape
        matrix = queries_keys.new_zeros(batch, width, width)
        matrix.diagonal(dim1=1, dim2=2).addcmul_(grad_factors, factors**3, value=-1)
        half = width // 2
        _blocks(matrix[:, :half, half:], ctx.heads).copy_(grad_products)
        _blocks(matrix[:, half:, :half], ctx.heads).copy_(grad_products.transpose(2, 3))
        return queries_keys @ matrix, None


def _moments(queries_keys: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(queries_keys.dtype, torch.float32)
    norms = torch.linalg.vector_norm(queries_keys, dim=1, dtype=wide)
    queries, keys = queries_keys.chunk(2, -1)
    return norms.clamp_min(1e-12).reciprocal(), _blocks(queries.transpose(1, 2) @ keys, heads)


def _blocks(x: Tensor, heads: int) -> Tensor:
    """The diagonal blocks (B,h,d,d) of matrices (B,C,C)."""
    x = x.unflatten(2, (heads, -1)).unflatten(1, (heads, -1))
    return x.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2)


class ScaledWeights(torch.autograd.Function):
    """A layer scale (out,) times the weight (out,C) and the bias (out,) of a linear layer."""

    @staticmethod
    def forward(ctx, scale: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(scale, weight, bias)
        return _scaled_weights(scale, weight, bias)

    @staticmethod
    def backward(ctx, grad_weight: Tensor, grad_bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scale, weight, bias = ctx.saved_tensors
        row_products = (grad_weight[:, None] @ weight[:, :, None]).flatten()  # (out,)
        grad_scale = torch.addcmul(row_products, grad_bias, bias)
        return grad_scale, *_scaled_weights(scale, grad_weight, grad_bias)


def _scaled_weights(scale: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return scale[:, None] * weight, scale * bias


def _second_moments(
    x: Tensor, weight: Tensor, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Squares and products of queries and keys, summed over the tokens.

    The covariance part (``Wq S Wk^T``) and the part of the mean are computed separately and added.
    In the squares both are at least zero, so that no digits cancel, even if the mean is large.

    Images and heads are one dimension: inductor (of torch 2.11) treats tensors (B,h,d,d) as feature
    maps, stores them channels-last next to convolutions, and then writes past their ends.

    Args:
        x: tokens (B,N,C).
        weight: (2C,C), rows of queries, then of keys.
        bias: (2C,) or None.
        heads: h.

    Returns:
        The squares of queries and of keys, (Bh,d) each, and their products for each head, (Bh,d,d).
    """
    mean = x.mean(1, keepdim=True)
    gram = centred_gram(x, mean)  # symmetric, its own transpose
    spread = linear_per_image(weight.expand(x.shape[0], -1, -1), gram)  # (B,2C,C)
    means = mean[:, 0] @ weight.t()  # (B,2C)
    if bias is not None:
        means = means + bias
    squares = (spread * weight).sum(-1) + x.shape[1] * means.square()
    keys = weight.chunk(2)[1].unflatten(0, (heads, -1)).transpose(1, 2)  # (h,C,d)
    query_spread = spread.chunk(2, 1)[0].unflatten(1, (heads, -1))  # (B,h,d,C)
    products = (query_spread @ keys).flatten(0, 1)
    query_means, key_means = (m.reshape(products.shape[0], -1) for m in means.chunk(2, 1))
    products = products + x.shape[1] * query_means[:, :, None] * key_means[:, None, :]
    query_squares, key_squares = (s.reshape(products.shape[0], -1) for s in squares.chunk(2, 1))
    return query_squares, key_squares, products


def _attention(
    query_squares: Tensor, key_squares: Tensor, products: Tensor, temperature: Tensor
) -> Tensor:
    """The attention of channels to channels (B*h,d,d); each row sums to one."""
    # norms are at least 1e-12, as in torch.nn.functional.normalize
    query_norms, key_norms = (x.clamp_min(1e-24).sqrt() for x in (query_squares, key_squares))
    cosine = products / (query_norms[:, :, None] * key_norms[:, None, :])
    cosine = cosine.clamp(-1, 1)  # exceeds 1 only by rounding errors
    temperature = temperature.repeat(products.shape[0] // temperature.shape[0], 1, 1)
    return (cosine * temperature).softmax(dim=-1)
