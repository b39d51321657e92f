"""Bi-level routing attention: each region attends to the few it is routed to (BiFormer).

A feature map is cut into R regions of L tokens. Each region is routed to the k regions whose mean
keys have the largest products with its mean query. The tokens of a region attend to all tokens of
the regions it is routed to. A depthwise convolution of the values is added (LePE)::

    routes = top k of mean(q) mean(k)^T                                     (R,k)
    out = wo(softmax(q k[routes]^T / sqrt(C)) v[routes] + lepe(v))          (R,L,C)

The implementation copies whole regions, as rows of a table, and calls fused attention. The backward
pass adds whole rows; that of ``torch.gather``, which the authors use, adds single numbers, and is
the slowest part of training. On a GPU, where a map has few tokens for each route, all tokens attend
to all, with a mask for the routes: products with masked keys then cost less than copies.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mmbixt.layers.definition import is_by_definition
from mmbixt.layers.precision import without_autocast
from mmbixt.layers.sizes import ceil_div, extend
from mmbixt.layers.softmax_attention import (
    attention_scores,
    fused_attention,
    head_width,
    join_heads,
    split_heads,
)


class Regions(NamedTuple):
    """How a feature map is cut into regions.

    Attributes:
        rows, columns: regions from top to bottom, and from left to right.
        height, width: of a region in cells.
    """

    rows: int
    columns: int
    height: int
    width: int

    def cut(self, x: Tensor) -> Tensor:
        """(B,H,W,C) to (B,R,L,C), with zeros at the right and the bottom up to whole regions."""
        x = extend(x, self.rows * self.height, self.columns * self.width)
        x = x.unflatten(2, (self.columns, self.width)).unflatten(1, (self.rows, self.height))
        return x.transpose(2, 3).flatten(3, 4).flatten(1, 2)

    def join(self, x: Tensor) -> Tensor:
        """(B,R,L,...) to the padded feature map (B,rows*height,columns*width,C), in one copy."""
        size = (self.rows * self.height, self.columns * self.width)
        channels = x.shape[3:].numel()
        x = x.unflatten(2, (self.height, self.width)).unflatten(1, (self.rows, self.columns))
        return x.transpose(2, 3).reshape(x.shape[0], *size, channels)

    def valid_cells(self, height: int, width: int, device: torch.device) -> Tensor | None:
        """(R,L), True for the cells of a feature map (H,W); None if nothing was padded."""
        if (self.rows * self.height, self.columns * self.width) == (height, width):
            return None
        row = torch.arange(self.rows * self.height, device=device) < height
        column = torch.arange(self.columns * self.width, device=device) < width
        return self.cut((row[:, None] & column)[None, :, :, None])[0, :, :, 0]


def region_side(length: int, cells: int, topk: int) -> int:
    """Cells on a side of a region, for a side of ``length`` cells of a feature map.

    Equation 9 of BiFormer minimises ``R^2 + k H W L``, for R regions of L tokens: the best side of
    square regions is ``(2 H W / k)^(1/6)``. The paper says neither how to round it nor what it is
    for maps that are not square. Of the sides up to a factor of ``sqrt(2)`` from it, this function
    takes the one that pads the map least, and of equals the one with the smallest sum.
    """

    def rank(side: int) -> tuple[bool, int, float]:
        is_far = not cells <= 4 * topk * side**6 <= 64 * cells
        return is_far, -length % side, cells / side**4 + topk * side**2

    longest = math.ceil((16 * cells / topk) ** (1 / 6))
    return min(range(1, min(length, longest) + 1), key=rank)


# --- Routes ---------------------------------------------------------------------------------------


@torch.no_grad()
def route(queries: Tensor, keys: Tensor, topk: int, valid: Tensor | None = None) -> Tensor:
    """The top k regions for each region, the best first; without a gradient.

    At least in float32, because rounding errors could change the order of the regions.

    Args:
        queries, keys: (B,R,L,C).
        topk: number k of regions to choose; all of them if there are fewer.
        valid: (R,L), False for tokens that the means leave out. Regions without valid tokens are
            chosen last.

    Returns:
        (B,R,k).
    """
    with without_autocast(queries):
        scores = _means(queries, valid) @ _means(keys, valid).transpose(1, 2)
    if valid is not None:
        scores = scores.masked_fill(~valid.any(1), -torch.inf)
    return scores.topk(min(topk, scores.shape[-1]), dim=-1).indices


def _means(x: Tensor, valid: Tensor | None) -> Tensor:
    """Means over the tokens of each region, (B,R,L,C) to (B,R,C)."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    if valid is None:
        return x.mean(2, dtype=dtype)
    share = valid.to(dtype) / valid.sum(1, keepdim=True).clamp_min(1)
    return (x * share[..., None]).sum(2)


# --- Attention ------------------------------------------------------------------------------------

MASK_LIMIT = 128  # tokens for each route, up to which GPUs call attend_masked


def routing_attention_maps(
    queries: Tensor, keys: Tensor, routes: Tensor, scale: float, valid: Tensor | None = None
) -> Tensor:
    """The attention of each token over the tokens of the k regions it is routed to, (B,r,h,L,kL).

    Each row sums to one. The arguments are those of :func:`routing_attention`, where queries
    (B,r,L,h,d) and routes (B,r,k) may be of r of the R regions.
    """
    scores = attention_scores(queries.transpose(2, 3), _gather(keys, routes), scale)
    if valid is not None:
        hidden = ~valid[routes].flatten(2)  # (B,r,kL)
        scores = scores.masked_fill(hidden[:, :, None, None], -torch.inf)
    return scores.softmax(dim=-1)


def routing_attention_definition(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    routes: Tensor,
    scale: float,
    valid: Tensor | None = None,
) -> Tensor:
    """:func:`routing_attention` by the equations above."""
    attention = routing_attention_maps(queries, keys, routes, scale, valid)
    return (attention @ _gather(values, routes)).transpose(2, 3)


def _gather(x: Tensor, routes: Tensor) -> Tensor:
    """The tokens (B,R,L,h,d) of the regions that each of r regions is routed to, (B,r,h,kL,d)."""
    _, _, tokens, heads, d = x.shape
    x = x[:, None].expand(-1, routes.shape[1], -1, -1, -1, -1)
    index = routes[..., None, None, None].expand(-1, -1, -1, tokens, heads, d)
    return x.gather(2, index).flatten(2, 3).transpose(2, 3)


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
    if is_by_definition():
        return routing_attention_definition(queries, keys, values, routes, scale, valid)
    batch, regions, tokens, heads, d = queries.shape
    if queries.device.type != 'cpu' and regions * tokens <= MASK_LIMIT * routes.shape[2]:
        return attend_masked(queries, keys, values, routes, scale, valid)
    first = torch.arange(batch, device=routes.device)[:, None, None] * regions
    rows = (routes + first).flatten()  # of a table of the regions of all images
    length = routes.shape[2] * tokens
    keys, values = (
        x.flatten(0, 1).index_select(0, rows).view(batch * regions, length, heads, d)
        for x in (keys, values)
    )
    bias = None
    if valid is not None:
        bias = _minus_infinity(~valid[routes], queries).view(batch * regions, 1, 1, length)
    heads_first = (x.transpose(1, 2) for x in (queries.flatten(0, 1), keys, values))
    out = fused_attention(*heads_first, scale, bias)
    return out.transpose(1, 2).unflatten(0, (batch, regions))


def attend_masked(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    routes: Tensor,
    scale: float,
    valid: Tensor | None,
) -> Tensor:
    """:func:`routing_attention` as attention among all tokens, with a mask for the routes."""
    batch, regions, tokens = queries.shape[:3]
    hidden = torch.ones(batch, regions, regions, dtype=torch.bool, device=routes.device)
    hidden = hidden.scatter(2, routes, False)[:, :, None, :, None]
    hidden = hidden.expand(-1, -1, tokens, -1, tokens)
    if valid is not None:
        hidden = hidden | ~valid
    length = regions * tokens
    bias = _minus_infinity(hidden, queries).reshape(batch, 1, length, length)
    heads_first = (x.flatten(1, 2).transpose(1, 2) for x in (queries, keys, values))
    out = fused_attention(*heads_first, scale, bias)
    return out.transpose(1, 2).unflatten(1, (regions, tokens))


def _minus_infinity(where: Tensor, like: Tensor) -> Tensor:
    """A mask in the dtype of attention: minus infinity where a condition holds, 0 elsewhere."""
    return torch.zeros_like(where, dtype=like.dtype).masked_fill(where, -torch.inf)


# --- Modules --------------------------------------------------------------------------------------


class RoutingAttention(nn.Module):
    """BiFormer's bi-level routing attention.

    Args:
        channels: width C of the tokens.
        num_heads: heads h. The scores are scaled by ``C ** -0.5``, not by a head's width.
        topk: number k of regions that a region attends to.
        num_regions: regions per side of the feature map, or 'auto': for each size of the map those
            of :func:`region_side`.
        padding: how the zeros are treated that pad a feature map to whole regions. 'masked': no
            token attends to them, and means leave them out. 'legacy', as in the authors' code: they
            are tokens of zero before the projection, whose biases they get.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        topk: int,
        num_regions: int | str,
        padding: str = 'masked',
    ) -> None:
        super().__init__()
        head_width(channels, num_heads)  # raises an error if the heads cannot share the channels
        self.num_heads = num_heads
        self.scale = channels**-0.5
        self.topk = topk
        self.num_regions = num_regions
        self.padding = padding
        self.lepe = local_enhancement(channels)
        self.qkv = nn.Sequential()
        self.qkv.add_module('qkv', nn.Linear(channels, 3 * channels))  # the authors' name: qkv.qkv
        self.wo = nn.Linear(channels, channels)

    def regions(self, height: int, width: int) -> Regions:
        """The regions of a feature map of this size."""
        if self.num_regions == 'auto':
            sides = [region_side(side, height * width, self.topk) for side in (height, width)]
            counts = [ceil_div(*pair) for pair in zip((height, width), sides, strict=True)]
        else:
            counts = [self.num_regions] * 2
            sides = [ceil_div(side, self.num_regions) for side in (height, width)]
        return Regions(*counts, *sides)

    def forward(self, x: Tensor) -> Tensor:
        """(B,H,W,C) to (B,H,W,C)."""
        height, width = x.shape[1:3]
        regions = self.regions(height, width)
        queries, keys, values, routes, valid = self.route(x, regions)
        out = routing_attention(queries, keys, values, routes, self.scale, valid)
        out, values = regions.join(out), regions.join(values)
        if not self.is_padded_before:
            out, values = (part[:, :height, :width] for part in (out, values))
        return self.wo((out + enhance_locally(self.lepe, values))[:, :height, :width])

    def route(self, x: Tensor, regions: Regions) -> tuple[Tensor, ...]:
        """Cut feature maps (B,H,W,C) into regions, project their tokens, and choose the routes.

        Returns:
            Queries, keys and values (B,R,L,h,d), the routes (B,R,k), and which tokens may be
            attended to (R,L), None for all.
        """
        valid, qkv = regions.valid_cells(*x.shape[1:3], x.device), self.qkv(regions.cut(x))
        counted = None if self.is_padded_before else valid  # tokens that count in means
        if counted is not None:
            qkv = qkv * counted[..., None].to(qkv.dtype)  # padding gets no bias of the projection
        queries, keys, values = qkv.chunk(3, dim=-1)
        routes = route(queries, keys, self.topk, counted)
        heads = (part.unflatten(-1, (self.num_heads, -1)) for part in (queries, keys, values))
        return *heads, routes, valid if self.padding == 'masked' else None

    @property
    def is_padded_before(self) -> bool:
        """Whether the padding is projected like tokens, and treated like tokens afterwards."""
        return self.padding == 'legacy'


class FullAttention(nn.Module):
    """BiFormer's last stage: ``out = proj(softmax(q k^T / sqrt(d)) v + lepe(x))``.

    Args:
        channels: width C of the tokens.
        num_heads: heads h; the scores are scaled by a head's width ``d ** -0.5``.
        lepe: whether there is a depthwise convolution.
    """

    def __init__(self, channels: int, num_heads: int = 8, lepe: bool = True) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = head_width(channels, num_heads) ** -0.5
        self.qkv = nn.Linear(channels, 3 * channels, bias=False)
        self.proj = nn.Linear(channels, channels)
        self.lepe = local_enhancement(channels) if lepe else None

    def forward(self, x: Tensor) -> Tensor:
        """(B,H,W,C) to (B,H,W,C)."""
        q, k, v = split_heads(self.qkv(x).flatten(1, 2), 3, self.num_heads)
        out = join_heads(fused_attention(q, k, v, self.scale)).unflatten(1, x.shape[1:3])
        if self.lepe is not None:
            out = out + enhance_locally(self.lepe, x)
        return self.proj(out)


def local_enhancement(channels: int) -> nn.Conv2d:
    """LePE: a depthwise convolution of 5 x 5."""
    return nn.Conv2d(channels, channels, 5, padding=2, groups=channels)


def enhance_locally(lepe: nn.Module, x: Tensor) -> Tensor:
    """LePE of tokens (B,H,W,C)."""
    return lepe(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
