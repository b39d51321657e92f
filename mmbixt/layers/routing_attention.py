from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from mmbixt.layers.convolution import apply_conv
from mmbixt.layers.linear import apply_linear
from mmbixt.layers.maps import as_image
from mmbixt.ops.dispatch import holds, needs_gradients
from mmbixt.ops.heads import head_width, join_heads, split_heads
from mmbixt.ops.inverse_attention import bidirectional_self_attention_maps, self_attention
from mmbixt.ops.padding import ceil_div, crop, larger
from mmbixt.ops.routing_attention import routing_attention, routing_attention_maps
from mmbixt.ops.routing_attention.masked import hides_regions, masked_routing_attention
from mmbixt.ops.routing_attention.reference import Routing, best_routes, routing_scores


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

    def pad(self, x: Tensor) -> Tensor:
        """(B,H,W,C) with zeros at the right and the bottom, up to whole regions."""
        bottom = self.rows * self.height - x.shape[1]
        right = self.columns * self.width - x.shape[2]
        if holds(bottom + right == 0):
            return x
        return pad(x, (0, 0, 0, right, 0, bottom))

    def unfold(self, x: Tensor) -> Tensor:
        """The padded feature map (B,H,W,...) to (B,rows,height,columns,width,...), a view."""
        return x.unflatten(2, (self.columns, self.width)).unflatten(1, (self.rows, self.height))

    def cut(self, x: Tensor) -> Tensor:
        """(B,H,W,C), padded, to (B,R,L,C)."""
        return self.unfold(self.pad(x)).transpose(2, 3).flatten(3, 4).flatten(1, 2)

    def join(self, x: Tensor) -> Tensor:
        """(B,R,L,...) to the padded feature map (B,rows*height,columns*width,C), in one copy."""
        size = (self.rows * self.height, self.columns * self.width)
        channels = x.shape[3:].numel()
        x = x.unflatten(2, (self.height, self.width)).unflatten(1, (self.rows, self.columns))
        return x.transpose(2, 3).reshape(x.shape[0], *size, channels)

    def inside_map(self, height: int, width: int, device: torch.device) -> Tensor | None:
        """Of the padded feature map (H,W), True for its own cells; None if nothing was padded."""
        if holds(self.rows * self.height == height) and holds(self.columns * self.width == width):
            return None
        row = torch.arange(self.rows * self.height, device=device) < height
        column = torch.arange(self.columns * self.width, device=device) < width
        return row[:, None] & column

    def inside(self, height: int, width: int, device: torch.device) -> Tensor | None:
        """The same cut into regions, (R,L)."""
        inside = self.inside_map(height, width, device)
        return None if inside is None else self.cut(inside[None, :, :, None])[0, :, :, 0]


class NestedQKV(nn.Module):
    """Queries, keys and values of each token; nested as the authors' weight, ``qkv.qkv``."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(channels, 3 * channels)

    def forward(self, x: Tensor) -> Tensor:
        """(...,C) to (...,3C)."""
        return apply_linear(self.qkv, x)


class RoutingAttention(nn.Module):
    """BiFormer's bi-level routing attention.

    A feature map is cut into regions. Each region is routed to the k regions whose mean keys have
    the largest products with its mean query. The tokens of a region attend to all tokens of the
    regions it is routed to. A depthwise convolution of the values is added (LePE: local
    enhancement)::

        routes = top k of mean(q) mean(k)^T                                     (R,k)
        out = wo(softmax(q k[routes]^T / sqrt(C)) v[routes] + lepe(v))          (R,L,C)

    Args:
        channels: width C of the tokens.
        num_heads: heads h. The scores are scaled by ``C ** -0.5``, not by a head's width.
        topk: number k of regions that a region attends to.
        num_regions: regions per side of the feature map.
        floor_regions: how a side is cut that ``num_regions`` does not divide. False: the size of
            the regions is rounded up. True: it is rounded down, and there are more regions.
        padding: how the zeros are treated that pad a feature map to whole regions. 'masked': no
            token attends to them, and means leave them out. 'legacy': as in the authors' code.
            With ``floor_regions`` they are keys and values of zero; without, they are tokens of
            zero before the projection, get its biases, and are treated like other tokens.
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
        head_width(channels, num_heads)  # raises an error if the heads cannot share the channels
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
        regions = self.regions(height, width)
        tokens = regions.rows * regions.height * regions.columns * regions.width
        attend = self._attend_cut
        if hides_regions(x, tokens, self.topk):
            attend = self._attend_uncut
        out, values = attend(x, regions)
        if not self._is_padded_before:
            out, values = (crop(part, height, width) for part in (out, values))
        out = out + enhance_locally(self.lepe, values)
        return apply_linear(self.wo, crop(out, height, width))

    def _attend_cut(self, x: Tensor, regions: Regions) -> tuple[Tensor, Tensor]:
        """Feature maps (B,H,W,C) to the output of the attention and to the values, padded."""
        queries, keys, values, routing = self._route(x, regions)
        out = routing_attention(queries, keys, values, *routing)
        return regions.join(out), regions.join(values)

    def _attend_uncut(self, x: Tensor, regions: Regions) -> tuple[Tensor, Tensor]:
        """The same with tokens that stay in the order of the feature map."""
        inside = regions.inside_map(*x.shape[1:3], x.device)
        qkv, counted, valid = self._project(regions.pad(x), inside)
        if counted is not None:
            counted = regions.unfold(counted[None])[0]
        queries_keys = regions.unfold(qkv)[..., : 2 * x.shape[3]]
        routes = best_routes(queries_keys, (2, 4), self.topk, counted)
        queries, keys, values = qkv.unflatten(-1, (3, self.num_heads, -1)).unbind(-3)
        sides, routing = (regions.rows, regions.columns), Routing(routes, self.scale, valid)
        out = masked_routing_attention(queries, keys, values, routing, sides)
        return out.flatten(3), values.flatten(3).contiguous()

    @torch.no_grad()
    def attention_maps(self, x: Tensor, region: int) -> Tensor:
        """For pictures: the attention of the L tokens of one region of feature maps (B,H,W,C).

        Returns:
            (B,h,L,k,L): for each token, its attention over the tokens of the k regions.
        """
        queries, keys, _, routing = self._route(x, self.regions(*x.shape[1:3]))
        own = slice(region, region + 1)
        routing = routing._replace(routes=routing.routes[:, own])
        maps = routing_attention_maps(queries[:, own], keys, *routing)
        return maps[:, 0].unflatten(-1, (routing.routes.shape[2], -1))

    @torch.no_grad()
    def routes(self, x: Tensor) -> tuple[Tensor, Regions]:
        """For pictures: the regions (B,R,k) that each region of (B,H,W,C) attends to."""
        regions = self.regions(*x.shape[1:3])
        return self._route(x, regions)[-1].routes, regions

    @torch.no_grad()
    def routing_gap(self, x: Tensor) -> Tensor:
        """How close each image of (B,H,W,C) is to another route, (B,).

        The smallest difference between the lowest chosen and the highest other score, divided by
        the largest score; infinite if all regions are chosen. Equal scores do not count: regions
        that contain only padding have them.
        """
        regions = self.regions(*x.shape[1:3])
        inside = regions.inside(*x.shape[1:3], x.device)
        qkv, counted, _ = self._project(regions.cut(x), inside)
        scores = routing_scores(qkv[..., : 2 * x.shape[3]], (2,), counted)
        if self.topk >= scores.shape[-1]:
            return x.new_full((len(x),), torch.inf)
        ordered = scores.topk(self.topk + 1, dim=-1).values
        gap = ordered[..., -2] - ordered[..., -1]
        largest = scores.masked_fill(scores.isinf(), 0.0).abs().amax((1, 2))
        return gap.masked_fill(~(gap > 0), torch.inf).amin(1) / largest

    @property
    def _is_padded_before(self) -> bool:
        """Whether the padding is projected like tokens, and treated like tokens afterwards."""
        return self.padding == 'legacy' and not self.floor_regions

    def _route(self, x: Tensor, regions: Regions) -> tuple[Tensor, Tensor, Tensor, Routing]:
        """Cut feature maps (B,H,W,C) into regions, project their tokens, and choose the routes.

        Returns:
            Queries, keys and values (B,R,L,h,d), and what they are routed to.
        """
        inside = regions.inside(*x.shape[1:3], x.device)
        qkv, counted, valid = self._project(regions.cut(x), inside)
        routes = best_routes(qkv[..., : 2 * x.shape[3]], (2,), self.topk, counted)
        queries, keys, values = qkv.unflatten(-1, (3, self.num_heads, -1)).unbind(-3)
        return queries, keys, values, Routing(routes, self.scale, valid)

    def _project(
        self, x: Tensor, inside: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Tokens (B,...,C), padded; ``inside`` (...) is False for padding, None without any.

        Returns:
            Queries, keys and values (B,...,3C); the tokens (...) that count in means, and those
            that may be attended to, or None for all.
        """
        qkv = self.qkv(x)
        counted = None if self._is_padded_before else inside
        if counted is not None:  # the biases of the projection are set to zero again
            qkv = qkv * counted[..., None].to(qkv.dtype)
        return qkv, counted, inside if self.padding == 'masked' else None


class FullAttention(nn.Module):
    """BiFormer's last stage: ``out = proj(softmax(q k^T / sqrt(d)) v + lepe(x or v))``.

    Args:
        channels: width C of the tokens.
        num_heads: heads h; the scores are scaled by a head's width ``d ** -0.5``.
        lepe_of: the input of the depthwise convolution: 'input' (x) in one code base of the
            authors, 'values' (v) in the other; None for no convolution.
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
            local = x if self.lepe_of == 'input' else qkv.chunk(3, dim=-1)[2]
            out = out + enhance_locally(self.lepe, local)
        return apply_linear(self.proj, out)

    @torch.no_grad()
    def attention_maps(self, x: Tensor) -> Tensor:
        """For pictures: the attention of each token of (B,H,W,C) over all tokens, (B,h,N,N)."""
        q, k, _ = split_heads(self.qkv(x).flatten(1, 2), 3, self.num_heads)
        return bidirectional_self_attention_maps(q, k, self.scale)[0]


def local_enhancement(channels: int) -> nn.Conv2d:
    """LePE: a depthwise convolution of 5 x 5."""
    return nn.Conv2d(channels, channels, 5, padding=2, groups=channels)


def enhance_locally(lepe: nn.Module, x: Tensor) -> Tensor:
    """LePE of tokens (B,H,W,C)."""
    image = as_image(x)
    trains = needs_gradients(x, *lepe.parameters())  # only its backward pass is slow
    return (apply_conv(lepe, image) if trains else lepe(image)).permute(0, 2, 3, 1)
