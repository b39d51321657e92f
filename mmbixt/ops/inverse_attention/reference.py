"""The definition: one matrix of scores, a softmax along each of its axes."""

from typing import NamedTuple

import torch
from torch import Tensor


class Inverse(NamedTuple):
    """The arguments of :func:`mmbixt.ops.bidirectional_self_attention` for the inverse branch."""

    q_hat: Tensor
    v_hat: Tensor
    G: Tensor


def attention_scores(q: Tensor, k: Tensor, scale: float, bias: Tensor | None) -> Tensor:
    """The scores of both branches, (...,h,N,N): rows are queries, columns are keys."""
    scores = scale * q @ k.transpose(-2, -1)
    return scores if bias is None else scores + bias


def bidirectional_self_attention_maps(
    q: Tensor, k: Tensor, scale: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The two attention matrices, both (...,h,N,N).

    The first sums to one over the keys (attention of each query), the second over the queries
    (inverse attention of each value).
    """
    scores = attention_scores(q, k, scale, bias)
    return scores.softmax(dim=-1), scores.softmax(dim=-2)


def self_attention_reference(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None
) -> Tensor:
    return attention_scores(q, k, scale, bias).softmax(dim=-1) @ v


def bidirectional_self_attention_reference(
    q: Tensor, k: Tensor, v: Tensor, inverse: Inverse, scale: float, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    over_keys, over_queries = bidirectional_self_attention_maps(q, k, scale, bias)
    q_hat, v_hat, G = inverse
    projected = torch.einsum('...ij,...ja,...ib,abc->...ic', over_queries, v_hat, q_hat, G)
    return over_keys @ v, projected
