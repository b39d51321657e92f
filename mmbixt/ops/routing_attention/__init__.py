"""Attention of each region of a map to the few regions that matter most to it (BiFormer)."""

from torch import Tensor

from mmbixt.ops.paths import choose_path
from mmbixt.ops.routing_attention.chunked import routing_attention_chunked
from mmbixt.ops.routing_attention.reference import route, routing_attention_reference

__all__ = ['route', 'routing_attention']

_PATHS = {'torch': routing_attention_chunked, 'reference': routing_attention_reference}


def routing_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    routes: Tensor,
    scale: float,
    valid: Tensor | None = None,
) -> Tensor:
    """Each token attends to all tokens of the regions that its own region is routed to.

    Args:
        queries: (B,R,L,h,d): L tokens in each of R regions.
        keys: (B,R,L,h,d).
        values: (B,R,L,h,d).
        routes: (B,R,k): the regions that each region attends to, from :func:`route`.
        scale: factor of the products of queries and keys.
        valid: (R,L), False for tokens that nobody attends to, such as padding; each region needs
            a valid token among those it is routed to.

    Returns:
        (B,R,L,h,d).
    """
    attend = choose_path('routing_attention', _PATHS)
    return attend(queries, keys, values, routes, scale, valid)
