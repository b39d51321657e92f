"""The definition: copies of the routed regions' keys and values for each region, then attention."""

from typing import NamedTuple

import torch
from torch import Tensor

from mmbixt.ops.padding import smaller
from mmbixt.ops.precision import without_autocast


class Routing(NamedTuple):
    """Which regions attend to which, and how; see :func:`mmbixt.ops.routing_attention`."""

    routes: Tensor
    scale: float
    valid: Tensor | None

    def rows(self, regions: int) -> Tensor:
        """The routes (B*R,k) among the regions of all images, one image after another."""
        first = torch.arange(self.routes.shape[0], device=self.routes.device) * regions
        return (self.routes + first[:, None, None]).flatten(0, 1)

    def valid_of_routes(self) -> Tensor:
        """Which of the tokens that a region is routed to are valid, (B,R,kL)."""
        return self.valid[self.routes].flatten(2)


@torch.no_grad()
def route(queries: Tensor, keys: Tensor, topk: int, valid: Tensor | None = None) -> Tensor:
    """The regions whose mean key agrees most with a region's mean query; without a gradient.

    In float32 also where the rest is in half precision: a route is right or wrong, not nearly so.

    Args:
        queries: (B,R,L,h,d).
        keys: (B,R,L,h,d).
        topk: k, regions to choose; as many as there are if there are fewer.
        valid: (R,L), False for tokens that do not count in the means. Regions without any that
            count are chosen last.

    Returns:
        (B,R,k), the best region first.
    """
    with without_autocast(queries):
        query_means, key_means = (_means(x, valid) for x in (queries, keys))
        agreement = query_means @ key_means.transpose(1, 2)
    if valid is not None:
        agreement = agreement.masked_fill(~valid.any(1), -torch.inf)
    return agreement.topk(smaller(topk, agreement.shape[-1]), dim=-1).indices


def _means(x: Tensor, valid: Tensor | None) -> Tensor:
    """Over the tokens of each region, (B,R,L,h,d) to (B,R,C)."""
    x = x.flatten(3)
    dtype = torch.promote_types(x.dtype, torch.float32)
    if valid is None:
        return x.mean(2, dtype=dtype)
    x = x.to(dtype)
    weight = valid.to(x.dtype) / valid.sum(1, keepdim=True).clamp_min(1)
    return (x * weight[:, :, None]).sum(2)


def routing_attention_maps(
    queries: Tensor, keys: Tensor, routes: Tensor, scale: float, valid: Tensor | None = None
) -> Tensor:
    """What each token gives to the tokens of the regions that its own is routed to, (B,r,h,L,kL).

    Each row sums to one. As :func:`mmbixt.ops.routing_attention`, with the queries (B,r,L,h,d) and
    the routes (B,r,k) of r of the R regions.
    """
    scores = scale * queries.transpose(2, 3) @ _gather(keys, routes).transpose(-2, -1)
    if valid is not None:
        hidden = ~Routing(routes, scale, valid).valid_of_routes()
        scores = scores.masked_fill(hidden[:, :, None, None], -torch.inf)
    return scores.softmax(dim=-1)


def routing_attention_reference(
    queries: Tensor, keys: Tensor, values: Tensor, routing: Routing
) -> Tensor:
    attention = routing_attention_maps(queries, keys, *routing)
    return (attention @ _gather(values, routing.routes)).transpose(2, 3)


def _gather(x: Tensor, routes: Tensor) -> Tensor:
    """(B,R,L,h,d) of all regions to (B,r,h,kL,d), those that each of r regions is routed to."""
    _, _, tokens, heads, d = x.shape
    x = x[:, None].expand(-1, routes.shape[1], -1, -1, -1, -1)
    index = routes[..., None, None, None].expand(-1, -1, -1, tokens, heads, d)
    return x.gather(2, index).flatten(2, 3).transpose(2, 3)
