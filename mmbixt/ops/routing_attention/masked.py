"""Routed attention as attention among all tokens of a feature map, with a mask for the routes.

Keys and values are not copied k times, and the feature map is not cut into regions. The cost is the
products with masked keys.
"""

import torch
from torch import Tensor

from mmbixt.ops.dispatch import (
    choose,
    holds,
    implementations,
    on_processor,
    operator_refusal,
    ops_path,
)
from mmbixt.ops.fused_attention import fused_attention
from mmbixt.ops.routing_attention.reference import Routing

# Tokens of a feature map for each route, at most: by bandwidth and half of its peak, an A100 takes
# as long for the products with hidden keys as for fetching (docs/performance.md has the counts).
MASKED = 128


def hides_regions(x: Tensor, tokens: int, topk: int) -> bool:
    """Whether a mask is expected to be faster, for this number of tokens and of routes."""
    if on_processor(x) or operator_refusal() or ops_path() in ('reference', 'cpu'):
        return False
    return holds(tokens <= MASKED * topk)


def _attend(
    queries: Tensor, keys: Tensor, values: Tensor, routing: Routing, sides: tuple[int, int]
) -> Tensor:
    batch, height, width, heads, _ = queries.shape
    regions = routing.routes.shape[1]
    mask = queries.new_full((batch, regions, regions), -torch.inf)
    mask = mask.scatter_(2, routing.routes, 0.0)
    # regions to tokens: (B,rows,1,columns,1) for the queries, the same for the keys
    rows, columns = sides
    inside = (rows, height // rows, columns, width // columns)
    mask = mask.view(batch, rows, 1, columns, 1, rows, 1, columns, 1)
    if routing.valid is not None:
        valid = routing.valid.view(inside)
        mask = mask.expand(-1, -1, -1, -1, -1, *inside).masked_fill(~valid, -torch.inf)
    mask = mask.expand(-1, *inside, *inside).reshape(batch, 1, height * width, height * width)
    heads_first = (x.flatten(1, 2).transpose(1, 2) for x in (queries, keys, values))
    out = fused_attention(*heads_first, routing.scale, mask.expand(-1, heads, -1, -1))
    return out.transpose(1, 2).unflatten(1, (height, width))


_PATHS = implementations(_attend)


def masked_routing_attention(
    queries: Tensor, keys: Tensor, values: Tensor, routing: Routing, sides: tuple[int, int]
) -> Tensor:
    """:func:`mmbixt.ops.routing_attention` of feature maps that are not cut into regions.

    Args:
        queries, keys, values: (B,H,W,h,d).
        routing: as there, but ``valid`` is (H,W).
        sides: how many regions there are from top to bottom, and from left to right.

    Returns:
        (B,H,W,h,d).
    """
    attend = choose('routing_attention', _PATHS, queries, routing.routes)
    return attend(queries, keys, values, routing, sides)
