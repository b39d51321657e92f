"""Self-attention, alone or with inverse self-attention on the same scores beside it (BiSA)."""

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
    """Each query gathers the values of the keys; its weights sum to one over the keys.

    Args:
        q: (...,h,N,d), and ``k`` and ``v`` alike.
        scale: factor of the products of queries and keys.
        bias: what is added to the scores, such as relative positions and masks; of a shape that
            broadcasts to (...,h,N,N). Keep a mask finite: BiSA also normalises over the queries.

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

    Inverse self-attention turns the roles around: a value chooses among the queries (its weights
    ``L`` sum to one over the *queries*), and it projects the query it has chosen:
    ``inverse[i] = sum_j L[i,j] W_j(q_hat[i])``, where the matrix ``W_j = sum_a v_hat[j,a] G[a]``
    is made from the value by a hypernetwork G.

    Args:
        q: (...,h,N,d), and ``k`` and ``v`` alike.
        q_hat, v_hat: (...,h,N,s), what the values project, and what projections are made from.
        G: (s,s,d), shared by the heads; its axes belong to ``v_hat``, ``q_hat`` and the output.
        scale: factor of the products of queries and keys.
        bias: as in :func:`self_attention`; both branches see it.

    Returns:
        The two branches, (...,h,N,d) each.
    """
    attend = choose('bidirectional_self_attention', _BOTH, q)
    return attend(q, k, v, Inverse(q_hat, v_hat, G), scale, bias)
