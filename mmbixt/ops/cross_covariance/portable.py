"""Cross-covariance attention without queries, keys or values of any token.

For tokens ``X`` (N,C) of an image with mean ``m``, and projections with weights ``W`` and biases
``b``, all that attention needs of queries and keys are sums over the tokens,

    Q^T K = Wq S Wk^T + N (Wq m + bq)(Wk m + bk)^T,   S = (X - m)^T (X - m),

and likewise the squares of their norms. With the attention ``A`` of all heads (block diagonal) and
the output projection ``Wo``, the output is the tokens times one matrix per image:

    X (Wo A Wv)^T + Wo A bv + bo.

So two products go over the tokens instead of four, and the backward pass needs the tokens alone.
"""

import torch
from torch import Tensor

from mmbixt.ops.cross_covariance.reference import CrossCovarianceWeights
from mmbixt.ops.dispatch import operator_refusal
from mmbixt.ops.linear import linear, linear_per_image, outer_sum_per_image
from mmbixt.ops.precision import is_half


class CentredGram(torch.autograd.Function):
    """(B,N,C) to the Gram matrix of the tokens less their mean, (B,C,C).

    It is symmetric, so its backward pass is one product, not two; and the mean needs no gradient
    of its own, because the centred tokens add up to zero.
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
    # what attention and output projection make of the value weights: one matrix per image
    mixed = (attention @ values.unflatten(0, (heads, -1))).flatten(1, 2)
    mixed = linear_per_image(proj_weight.expand(x.shape[0], -1, -1), mixed.transpose(1, 2))
    constant = proj_bias.expand(x.shape[0], -1)
    if value_bias is not None:
        mixed_bias = (attention @ value_bias.view(heads, -1, 1)).flatten(1)
        constant = constant + mixed_bias @ proj_weight.t()
    return linear_per_image(x, mixed, constant)


def _with_tokens(x: Tensor, weights: CrossCovarianceWeights) -> Tensor:
    """The plain order, without a copy of queries, keys, values or outputs.

    Norms divide the products, not the queries and keys; attention and output projection become one
    matrix per image (C,C) for the values.
    """
    qkv_weight, qkv_bias, temperature, proj_weight, proj_bias, scale = weights
    heads = len(temperature)
    may_apply = not operator_refusal()
    if scale is not None:
        scaled = ScaledWeights.apply if may_apply else _scaled_weights
        proj_weight, proj_bias = scaled(scale, proj_weight, proj_bias)
    queries_keys, values = linear(x, qkv_weight, qkv_bias).split((2 * x.shape[2], x.shape[2]), -1)
    lengths, products = (Moments.apply if may_apply else _moments)(queries_keys, heads)
    of_queries, of_keys = lengths.unflatten(1, (2, heads, -1)).unbind(1)
    scores = products * (temperature * of_queries[..., None]) * of_keys[:, :, None]
    attention = scores.softmax(dim=-1).to(values.dtype).permute(1, 2, 0, 3).flatten(2)  # (h,d,Bd)
    mixed = proj_weight.unflatten(1, (heads, -1)).transpose(0, 1) @ attention
    mixed = mixed.unflatten(2, (x.shape[0], -1)).permute(2, 1, 0, 3).flatten(2)  # (B,C,C)
    return linear_per_image(values, mixed, proj_bias.expand(x.shape[0], -1))


class Moments(torch.autograd.Function):
    """Queries and keys (B,N,2C) to one over their norms (B,2C) and the products of a head's.

    The products (B,h,d,d) are the blocks on the diagonal of those of all channels (B,C,C): for each
    head apart, the tokens would be copied. The backward pass is one product, too: the gradients of
    a token's queries and keys are sums over its queries and keys.
    """

    @staticmethod
    def forward(ctx, queries_keys: Tensor, heads: int) -> tuple[Tensor, Tensor]:
        lengths, products = _moments(queries_keys, heads)
        ctx.save_for_backward(queries_keys, lengths)
        ctx.heads = heads
        return lengths, products

    @staticmethod
    def backward(ctx, grad_lengths: Tensor, grad_products: Tensor) -> tuple[Tensor, None]:
        queries_keys, lengths = ctx.saved_tensors
        batch, width = lengths.shape
        matrix = queries_keys.new_zeros(batch, width, width)
        matrix.diagonal(dim1=1, dim2=2).addcmul_(grad_lengths, lengths**3, value=-1)
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
    """Of matrices (B,C,C) the blocks on the diagonal, (B,h,d,d)."""
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
        of_weight = (grad_weight[:, None] @ weight[:, :, None]).flatten()
        grad_scale = torch.addcmul(of_weight, grad_bias, bias)
        return grad_scale, *_scaled_weights(scale, grad_weight, grad_bias)


def _scaled_weights(scale: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return scale[:, None] * weight, scale * bias


def _second_moments(
    x: Tensor, weight: Tensor, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums over the tokens of what the queries and keys would be.

    The spread (``Wq S Wk^T``) and the mean's part are computed apart: both parts of a square are
    positive, so no digits cancel where a mean, or a bias against it, is large beside the spread.

    Images and heads are one dimension: inductor (of torch 2.11) takes tensors (B,h,d,d) for feature
    maps, stores them channels-last beside convolutions, and then writes past their ends.

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
    """(Bh,d,d), each row summing to one."""
    # at least 1e-12, as in torch.nn.functional.normalize
    query_norms, key_norms = (x.clamp_min(1e-24).sqrt() for x in (query_squares, key_squares))
    correlation = products / (query_norms[:, :, None] * key_norms[:, None, :])
    correlation = correlation.clamp(-1, 1)  # as it is but for rounding
    temperature = temperature.repeat(products.shape[0] // temperature.shape[0], 1, 1)
    return (correlation * temperature).softmax(dim=-1)
