from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from mmbixt.layers.linear import apply_linear
from mmbixt.layers.maps import as_image
from mmbixt.ops.dispatch import holds
from mmbixt.ops.heads import head_width, join_heads, split_heads
from mmbixt.ops.inverse_attention import bidirectional_self_attention_maps, self_attention
from mmbixt.ops.padding import ceil_div, crop, larger
from mmbixt.ops.routing_attention import route, routing_attention, routing_attention_maps


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
        """(B,H,W,C), padded with zeros at the right and the bottom, to (B,R,L,C)."""
        bottom = self.rows * self.height - x.shape[1]
        right = self.columns * self.width - x.shape[2]
        if not holds(bottom + right == 0):
            x = pad(x, (0, 0, 0, right, 0, bottom))
        x = x.unflatten(2, (self.columns, self.width)).unflatten(1, (self.rows, self.height))
        return x.transpose(2, 3).flatten(3, 4).flatten(1, 2)

    def join(self, x: Tensor) -> Tensor:
        """(B,R,L,...) to the padded feature map (B,rows*height,columns*width,C), in one copy."""
        size = (self.rows * self.height, self.columns * self.width)
        channels = x.shape[3:].numel()
        x = x.unflatten(2, (self.height, self.width)).unflatten(1, (self.rows, self.columns))
        return x.transpose(2, 3).reshape(x.shape[0], *size, channels)

    def inside(self, height: int, width: int, device: torch.device) -> Tensor | None:
        """(R,L), True for the cells of the feature map; None if nothing was padded."""
        if holds(self.rows * self.height == height) and holds(self.columns * self.width == width):
            return None
        row = torch.arange(self.rows * self.height, device=device) < height
        column = torch.arange(self.columns * self.width, device=device) < width
        return self.cut((row[:, None] & column[None, :])[None, :, :, None])[0, :, :, 0]


class NestedQKV(nn.Module):
    """Queries, keys and values of each token; the authors' name of the weight is ``qkv.qkv``."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(channels, 3 * channels)

    def forward(self, x: Tensor) -> Tensor:
        """(...,C) to (...,3C)."""
        return apply_linear(self.qkv, x)


class RoutingAttention(nn.Module):
    """BiFormer's bi-level routing attention.

    A feature map is cut into regions; each region is routed to the k regions whose mean keys agree
    most with its mean query; its tokens attend to all tokens of those. A depthwise convolution of
    the values is added (LePE: local enhancement)::

        routes = top k of mean(q) mean(k)^T                                     (R,k)
        out = wo(softmax(q k[routes]^T / sqrt(C)) v[routes] + lepe(v))          (R,L,C)

    Args:
        channels: width C of the tokens.
        num_heads: heads h. The scores are scaled by ``C ** -0.5``, not by a head's width.
        topk: regions k that a region attends to.
        num_regions: regions per side of the feature map.
        floor_regions: what becomes of a side that ``num_regions`` does not divide. False: regions
            get larger until they cover it. True: they get smaller, and there are more of them.
        padding: what the zeros do that pad a feature map to whole regions. 'masked': nothing,
            nobody attends to them, and they count in no mean. 'legacy': what they do in the
            authors' code. With ``floor_regions`` they are keys and values of zero; otherwise they
            are tokens of zero before the projection, with its biases, and do all that tokens do.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        topk: int,
        num_regions: int,
        floor_regions: bool = False,
        padding: str = 'masked',
    ) -> None:
        super().__init__()
        head_width(channels, num_heads)  # or an error
        self.num_heads = num_heads
        self.scale = channels**-0.5
        self.topk = topk
        self.num_regions = num_regions
        self.floor_regions = floor_regions
        self.padding = padding
        self.lepe = local_enhancement(channels)
        self.qkv = NestedQKV(channels)
        self.wo = nn.Linear(channels, channels)

    def regions(self, height: int, width: int) -> Regions:
        """The regions of a feature map of this size."""
        if self.floor_regions:
            sides = [larger(1, side // self.num_regions) for side in (height, width)]
            counts = [ceil_div(*pair) for pair in zip((height, width), sides, strict=True)]
        else:
            counts = [self.num_regions] * 2
            sides = [ceil_div(side, self.num_regions) for side in (height, width)]
        return Regions(*counts, *sides)

    def forward(self, x: Tensor) -> Tensor:
        """(B,H,W,C) to (B,H,W,C)."""
        height, width = x.shape[1:3]
        regions, queries, keys, values, routes, valid = self._route(x)
        out = routing_attention(queries, keys, values, routes, self.scale, valid)
        out, values = (regions.join(part) for part in (out, values))
        if not self._is_padded_before:
            out, values = (crop(part, height, width) for part in (out, values))
        out = out + self.lepe(as_image(values)).permute(0, 2, 3, 1)
        return apply_linear(self.wo, crop(out, height, width))

    @torch.no_grad()
    def attention_maps(self, x: Tensor, region: int) -> Tensor:
        """For pictures: what the L tokens of one region attend to, of feature maps (B,H,W,C).

        Returns:
            (B,h,L,k,L), over the tokens of the regions that the region is routed to.
        """
        _, queries, keys, _, routes, valid = self._route(x)
        own = slice(region, region + 1)
        maps = routing_attention_maps(queries[:, own], keys, routes[:, own], self.scale, valid)
        return maps[:, 0].unflatten(-1, (routes.shape[2], -1))

    @torch.no_grad()
    def routes(self, x: Tensor) -> tuple[Tensor, Regions]:
        """For pictures: the regions (B,R,k) that each region of (B,H,W,C) attends to."""
        regions, *_, routes, _ = self._route(x)
        return routes, regions

    @property
    def _is_padded_before(self) -> bool:
        """Whether padding goes through the projection and is a token from then on."""
        return self.padding == 'legacy' and not self.floor_regions

    def _route(self, x: Tensor) -> tuple[Regions, Tensor, Tensor, Tensor, Tensor, Tensor | None]:
        """Cut feature maps (B,H,W,C) into regions, project their tokens, and choose the routes.

        Returns:
            The regions; queries, keys and values (B,R,L,h,d); the routes (B,R,k); the tokens (R,L)
            that may be attended to, or None for all.
        """
        regions = self.regions(*x.shape[1:3])
        inside = regions.inside(*x.shape[1:3], x.device)
        qkv = self.qkv(regions.cut(x))
        counted = None if self._is_padded_before else inside
        if counted is not None:  # zero behind the projection, not before it
            qkv = qkv * counted[:, :, None].to(qkv.dtype)
        queries, keys, values = qkv.unflatten(-1, (3, self.num_heads, -1)).unbind(-3)
        routes = route(queries, keys, self.topk, counted)
        valid = inside if self.padding == 'masked' else None
        return regions, queries, keys, values, routes, valid


class FullAttention(nn.Module):
    """BiFormer's last stage: attention among all tokens, with LePE or without.

    Args:
        channels: width C of the tokens.
        num_heads: heads h; the scores are scaled by a head's width ``d ** -0.5``.
        lepe_of: what the depthwise convolution sees: 'input' or 'values', which the authors' two
            code bases differ in; None for no convolution.
    """

    def __init__(self, channels: int, num_heads: int = 8, lepe_of: str | None = 'input') -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = head_width(channels, num_heads) ** -0.5
        self.lepe_of = lepe_of
        self.qkv = nn.Linear(channels, 3 * channels, bias=False)
        self.proj = nn.Linear(channels, channels)
        self.lepe = None if lepe_of is None else local_enhancement(channels)

    def forward(self, x: Tensor) -> Tensor:
        """(B,H,W,C) to (B,H,W,C)."""
        qkv = apply_linear(self.qkv, x)
        q, k, v = split_heads(qkv.flatten(1, 2), 3, self.num_heads)
        out = join_heads(self_attention(q, k, v, self.scale)).unflatten(1, x.shape[1:3])
        if self.lepe is not None:
            seen = x if self.lepe_of == 'input' else qkv.chunk(3, dim=-1)[2]
            out = out + self.lepe(as_image(seen)).permute(0, 2, 3, 1)
        return apply_linear(self.proj, out)

    @torch.no_grad()
    def attention_maps(self, x: Tensor) -> Tensor:
        """For pictures: what each token of feature maps (B,H,W,C) attends to, (B,h,N,N)."""
        q, k, _ = split_heads(self.qkv(x).flatten(1, 2), 3, self.num_heads)
        return bidirectional_self_attention_maps(q, k, self.scale)[0]


def local_enhancement(channels: int) -> nn.Conv2d:
    return nn.Conv2d(channels, channels, 5, padding=2, groups=channels)
