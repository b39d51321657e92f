"""Attention of each region to the few regions that it is routed to (BiFormer)."""

from torch import Tensor

from mmbixt.ops.cpu.routing_attention import routing_attention_cpu
from mmbixt.ops.dispatch import choose, implementations
from mmbixt.ops.routing_attention.portable import routing_attention_portable
from mmbixt.ops.routing_attention.reference import (
    Routing,
    route,
    routing_attention_maps,
    routing_attention_reference,
)

__all__ = ['route', 'routing_attention', 'routing_attention_maps']

_PATHS = implementations(
    routing_attention_reference, routing_attention_portable, routing_attention_cpu
)


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
        queries, keys, values: (B,R,L,h,d): L tokens in each of R regions.
        routes: (B,R,k): the regions that each region attends to, from :func:`route`.
        scale: factor of the products of queries and keys.
        valid: (R,L), False for tokens that no token attends to, such as padding. Each region needs
            a valid token among those of the regions it is routed to.

    Returns:
        (B,R,L,h,d).
    """
    attend = choose('routing_attention', _PATHS, queries, routes)
    return attend(queries, keys, values, Routing(routes, scale, valid))
