"""Routing attention by fused attention, on copies of the routed regions.

Whole regions are copied, as rows of a table, and the backward pass adds whole rows. That of
``torch.gather``, which the authors use, adds single numbers, and is the slowest part of training.
"""

from torch import Tensor

from mmbixt.ops.fused_attention import fused_attention
from mmbixt.ops.routing_attention.reference import Routing


def routing_attention_portable(
    queries: Tensor, keys: Tensor, values: Tensor, routing: Routing
) -> Tensor:
    batch, regions, tokens, heads, d = queries.shape
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
