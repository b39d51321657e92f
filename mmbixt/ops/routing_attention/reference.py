"""The definition: copies of the routed regions' keys and values for each region, then attention."""

from typing import NamedTuple

import torch
from torch import Tensor

from mmbixt.ops.padding import smaller
from mmbixt.ops.precision import without_autocast


class Routing(NamedTuple):
    """The arguments of :func:`mmbixt.ops.routing_attention` except queries, keys and values."""

    routes: Tensor
    scale: float
    valid: Tensor | None

    def rows(self, regions: int) -> Tensor:
        """The routes (B*R,k) as indices into the regions of all images, one image after another."""
        first = torch.arange(self.routes.shape[0], device=self.routes.device) * regions
        return (self.routes + first[:, None, None]).flatten(0, 1)

    def valid_of_routes(self) -> Tensor:
        """``valid`` for the tokens that each region is routed to, (B,R,kL)."""
        return self.valid[self.routes].flatten(2)


def route(queries: Tensor, keys: Tensor, topk: int, valid: Tensor | None = None) -> Tensor:
    """The top k regions by ``mean(q) mean(k)^T``, for each region; without a gradient.

    Always at least in float32, because rounding errors could change the order of the regions.

    Args:
        queries: (B,R,L,h,d).
        keys: (B,R,L,h,d).
        topk: number k of regions to choose, at most R.
        valid: (R,L), False for tokens that the means leave out. Regions without valid tokens are
            chosen last.

    Returns:
        (B,R,k), the best region first.
    """
    return best_routes(torch.cat((queries, keys), -2).flatten(3), (2,), topk, valid)


@torch.no_grad()
def best_routes(
    queries_keys: Tensor, within: tuple[int, ...], topk: int, valid: Tensor | None
) -> Tensor:
    """:func:`route` for concatenated queries and keys, for any order of the tokens.

    They are (B,...,2C); the dimensions ``within`` are inside a region. ``valid`` is (...).
    """
    scores = routing_scores(queries_keys, within, valid)
    return scores.topk(smaller(topk, scores.shape[-1]), dim=-1).indices


@torch.no_grad()
def routing_scores(queries_keys: Tensor, within: tuple[int, ...], valid: Tensor | None) -> Tensor:
    """``mean(q) mean(k)^T`` (B,R,R), minus infinity for regions without a valid token."""
    with without_autocast(queries_keys):
        means = _means(queries_keys, within, valid).flatten(1, -2)
        query_means, key_means = means.chunk(2, -1)
        scores = query_means @ key_means.transpose(1, 2)
    if valid is not None:
        counted = valid.sum([dim - 1 for dim in within]).flatten() > 0
        scores = scores.masked_fill(~counted, -torch.inf)
    return scores


def _means(x: Tensor, within: tuple[int, ...], valid: Tensor | None) -> Tensor:
    """Means over the tokens of each region, of (B,...,C), at least in float32."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    if valid is None:
        return x.mean(within, dtype=dtype)
    x = x.to(dtype)
    count = valid.sum([dim - 1 for dim in within], keepdim=True).clamp_min(1)
    return (x * (valid.to(x.dtype) / count)[..., None]).sum(within)


def routing_attention_maps(
    queries: Tensor, keys: Tensor, routes: Tensor, scale: float, valid: Tensor | None = None
) -> Tensor:
    """The attention of each token over the tokens of the k regions it is routed to, (B,r,h,L,kL).

    Each row sums to one. The arguments are those of :func:`mmbixt.ops.routing_attention`, where
    queries (B,r,L,h,d) and routes (B,r,k) may be of r of the R regions.
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
    """(B,R,L,h,d) of all regions to those that each of r regions is routed to, (B,r,h,kL,d)."""
    _, _, tokens, heads, d = x.shape
    x = x[:, None].expand(-1, routes.shape[1], -1, -1, -1, -1)
    index = routes[..., None, None, None].expand(-1, -1, -1, tokens, heads, d)
    return x.gather(2, index).flatten(2, 3).transpose(2, 3)
