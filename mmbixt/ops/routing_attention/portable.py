"""Routing attention by fused attention: routed regions are copied, or the others masked.

Whole regions are copied, as rows of a table. The backward pass adds rows to rows; that of
``torch.gather``, which the authors use, adds single numbers, and is the slowest part of their code
in training.

The keys and values of each region are copied k times on average. For small regions on a GPU,
attention among all tokens with a mask is used instead: a fused kernel computes whole tiles of
queries, also where a region is smaller than a tile, so that this computes no more, without copies.
"""

import torch
from torch import Tensor

from mmbixt.ops.dispatch import on_processor
from mmbixt.ops.fused_attention import fused_attention
from mmbixt.ops.routing_attention.reference import Routing

TILE = 64  # queries that a fused kernel computes at a time


def routing_attention_portable(
    queries: Tensor, keys: Tensor, values: Tensor, routing: Routing
) -> Tensor:
    batch, regions, tokens, heads, d = queries.shape
    if not on_processor(queries) and regions * tokens <= TILE * routing.routes.shape[2]:
        return _attend_among_all(queries, keys, values, routing)
    rows = routing.rows(regions).flatten()
    length = routing.routes.shape[2] * tokens
    # (B R k, L, h, d), one row for each routed region; then the k of a region are one sequence
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
    """Attention to all regions, with a mask that hides those that a region is not routed to."""
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
