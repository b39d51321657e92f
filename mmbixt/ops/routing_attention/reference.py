"""The definition: copies of the routed regions' keys and values for each region, then attention."""

from typing import NamedTuple

import torch
from torch import Tensor

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
    return best_routes(torch.cat((queries, keys), -2).flatten(3), (2,), topk, valid)


@torch.no_grad()
def best_routes(
    queries_keys: Tensor, within: tuple[int, ...], topk: int, valid: Tensor | None
) -> Tensor:
    """:func:`route` of queries and keys side by side, whatever the order of the tokens.

    Of (B,...,2C), whose dimensions ``within`` are within a region; ``valid`` has those between.
    """
    with without_autocast(queries_keys):
        means = _means(queries_keys, within, valid).flatten(1, -2)
        query_means, key_means = means.chunk(2, -1)
        agreement = query_means @ key_means.transpose(1, 2)
    if valid is not None:
        counted = valid.sum([dim - 1 for dim in within]).flatten() > 0
        agreement = agreement.masked_fill(~counted, -torch.inf)
    return agreement.topk(min(topk, agreement.shape[-1]), dim=-1).indices


def _means(x: Tensor, within: tuple[int, ...], valid: Tensor | None) -> Tensor:
    """(B,...,C) to the means of regions, in float32 at least."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    if valid is None:
        return x.mean(within, dtype=dtype)
    x = x.to(dtype)
    count = valid.sum([dim - 1 for dim in within], keepdim=True).clamp_min(1)
    return (x * (valid.to(x.dtype) / count)[..., None]).sum(within)


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
