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


class Gram(torch.autograd.Function):
    """(B,N,C) to ``x^T x``, (B,C,C): symmetric, so its backward pass is one product, not two."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.transpose(1, 2) @ x

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return x @ (grad + grad.transpose(1, 2))


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
) -> Tensor:
    """See :func:`mmbixt.ops.cross_covariance_attention`."""
    weights = (qkv_weight, qkv_bias, temperature, proj_weight, proj_bias)
    if not pays(x):
        return cross_covariance_attention_reference(x, *weights, dropout)
    heads = len(temperature)
    query_key, values = qkv_weight.split((2 * x.shape[2], x.shape[2]))
    if qkv_bias is None:
        squares, products = _second_moments(Gram.apply(x), query_key, heads)
    else:
        query_key_bias, value_bias = qkv_bias.split((2 * x.shape[2], x.shape[2]))
        moments = (Gram.apply(x), query_key, heads, x.sum(1), x.shape[1], query_key_bias)
        squares, products = _second_moments(*moments)
    attention = drop(_attention(squares, products, temperature), dropout)
    # what attention and output projection make of the value weights: one matrix per image
    mixed = proj_weight @ (attention @ values.unflatten(0, (heads, -1))).flatten(1, 2)
    constant = proj_bias.expand(len(x), -1)
    if qkv_bias is not None:
        constant = constant + (
            (attention @ value_bias.view(heads, -1, 1)).flatten(1) @ proj_weight.t()
        )
    return torch.baddbmm(constant[:, None], x, mixed.transpose(1, 2))


def _second_moments(
    gram: Tensor,
    weight: Tensor,
    heads: int,
    total: Tensor | None = None,
    count: int | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sums over the tokens of what the queries and keys would be.

    Args:
        gram: (B,C,C).
        weight: (2C,C), rows of queries, then of keys.
        heads: h.
        total: sum of the tokens (B,C); with a bias.
        count: number of tokens; with a bias.
        bias: (2C,) or None.

    Returns:
        The squares of all queries and keys, (B,2,h,d), and the products of those of a head,
        (B,h,d,d).
    """
    correlated = weight @ gram  # (B,2C,C)
    squares = (correlated * weight).sum(-1)
    keys = weight.chunk(2)[1].unflatten(0, (heads, -1))
    products = correlated[:, : len(weight) // 2].unflatten(1, (heads, -1)) @ keys.transpose(-2, -1)
    if bias is not None:
        sums = total @ weight.t()  # (B,2C), without the bias
        squares = squares + bias * (2 * sums + count * bias)
        query_bias, key_bias = bias.unflatten(0, (2, heads, -1)).unbind(0)  # (h,d)
        query_sums, key_sums = sums.unflatten(1, (2, heads, -1)).unbind(1)  # (B,h,d)
        products = products + (
            query_sums[..., :, None] * key_bias[:, None, :]
            + query_bias[:, :, None] * (key_sums + count * key_bias)[..., None, :]
        )
    return squares.unflatten(1, (2, heads, -1)), products


def _attention(squares: Tensor, products: Tensor, temperature: Tensor) -> Tensor:
    """(B,h,d,d), each row summing to one."""
    # at least 1e-12, as in torch.nn.functional.normalize
    query_norms, key_norms = squares.clamp_min(1e-24).sqrt().unbind(1)
    correlation = products / (query_norms[..., :, None] * key_norms[..., None, :])
    return (correlation * temperature).softmax(dim=-1)
