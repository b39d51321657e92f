"""Self-attention, and self-attention with inverse self-attention on the same scores (BiSA)."""

from torch import Tensor

from mmbixt.ops.dispatch import choose, implementations
from mmbixt.ops.inverse_attention.portable import (
    bidirectional_self_attention_portable,
    self_attention_portable,
)
from mmbixt.ops.inverse_attention.reference import (
    Inverse,
    bidirectional_self_attention_maps,
    bidirectional_self_attention_reference,
    self_attention_reference,
)

__all__ = ['bidirectional_self_attention', 'bidirectional_self_attention_maps', 'self_attention']

_ALONE = implementations(self_attention_reference, self_attention_portable)
_BOTH = implementations(
    bidirectional_self_attention_reference, bidirectional_self_attention_portable
)


def self_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None = None
) -> Tensor:
    """``softmax(scale * q k^T + bias, over keys) v``.

    Args:
        q, k, v: (...,h,N,d) each.
        scale: factor of the products of queries and keys.
        bias: is added to the scores: relative positions, masks; of a shape that broadcasts to
            (...,h,N,N). Masks must be finite, because BiSA also normalises over the queries.

    Returns:
        (...,h,N,d).
    """
    return choose('self_attention', _ALONE, q, bias)(q, k, v, scale, bias)


def bidirectional_self_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_hat: Tensor,
    v_hat: Tensor,
    G: Tensor,
    scale: float,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Self-attention, and inverse self-attention with the same scores.

    In inverse self-attention each value attends to the queries (its weights ``L`` sum to one over
    the *queries*) and projects them with a matrix that the hypernetwork G makes from the value::

        S = scale * q k^T + bias
        plain = softmax(S, over keys) v
        inverse[i] = sum_j L[i,j] q_hat[i] W_j,   L = softmax(S, over queries)
        W_j = sum_a v_hat[j,a] G[a]

    Args:
        q, k, v: (...,h,N,d) each.
        q_hat: (...,h,N,s), the queries that are projected.
        v_hat: (...,h,N,s), the values that the projections are made from.
        G: (s,s,d), shared by the heads; its axes belong to ``v_hat``, ``q_hat`` and the output.
        scale: factor of the products of queries and keys.
        bias: as in :func:`self_attention`; added for both branches.

    Returns:
        The two branches, (...,h,N,d) each.
    """
    attend = choose('bidirectional_self_attention', _BOTH, q)
    return attend(q, k, v, Inverse(q_hat, v_hat, G), scale, bias)
