"""Whole regions are fetched as rows of a table, for fused attention; or hidden by a mask.

The backward pass of such a fetch adds rows to rows. That of ``torch.gather`` scatters single
numbers, which is the slowest part of BiFormer's own code in training.

Each region's keys and values are fetched k times. On a GPU small regions are not: a fused kernel
computes for a tile of queries whether or not a region fills it, so that attention among all tokens,
with a mask, computes no more there, and moves and keeps k times less.
"""

import torch
from torch import Tensor

from mmbixt.ops.dispatch import on_processor
from mmbixt.ops.fused_attention import fused_attention
from mmbixt.ops.routing_attention.reference import Routing

TILE = 64  # queries that a fused kernel takes at a time


def routing_attention_portable(
    queries: Tensor, keys: Tensor, values: Tensor, routing: Routing
) -> Tensor:
    batch, regions, tokens, heads, d = queries.shape
    if not on_processor(queries) and regions * tokens <= TILE * routing.routes.shape[2]:
        return _attend_among_all(queries, keys, values, routing)
    rows = routing.rows(regions).flatten()
    length = routing.routes.shape[2] * tokens
    # (B R k, L, h, d), rows of a region's tokens; then the k regions of one become one sequence
    keys, values = (
        x.flatten(0, 1).index_select(0, rows).view(batch * regions, length, heads, d)
        for x in (keys, values)
    )
    mask = None
    if routing.valid is not None:
        visible = routing.valid_of_routes().flatten(0, 1)
        mask = visible[:, None, None].expand(-1, 1, tokens, -1)
    heads_first = (x.transpose(1, 2) for x in (queries.flatten(0, 1), keys, values))
    out = fused_attention(*heads_first, routing.scale, mask)
    return out.transpose(1, 2).unflatten(0, (batch, regions))


def _attend_among_all(queries: Tensor, keys: Tensor, values: Tensor, routing: Routing) -> Tensor:
    """Queries of each region to all regions; those it is not routed to are hidden."""
    batch, regions, tokens = queries.shape[:3]
    hidden = queries.new_full((batch, regions, regions), -torch.inf)
    hidden = hidden.scatter_(2, routing.routes, 0.0)[..., None].expand(-1, -1, -1, tokens)
    if routing.valid is not None:
        hidden = hidden.masked_fill(~routing.valid, -torch.inf)
    mask = hidden[:, None, :, None].expand(-1, 1, -1, tokens, -1, -1).flatten(4).flatten(2, 3)
    mask = mask.expand(-1, queries.shape[3], -1, -1)
    heads_first = (x.flatten(1, 2).transpose(1, 2) for x in (queries, keys, values))
    out = fused_attention(*heads_first, routing.scale, mask)
    return out.transpose(1, 2).unflatten(1, (regions, tokens))
