"""Attentions, layers and networks on inputs of usual and unusual shapes, for CPUs and GPUs.

A case makes a function or a module, and its inputs.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from variants import FAMILIES, NETWORKS, build

from mmbixt import attention, layers
from mmbixt.attention import bidirectional, cross_covariance, routing
from mmbixt.attention.windows import Windows
from mmbixt.layers.softmax_attention import fused_attention

Case = tuple[Callable, list]


def learned(*sizes: tuple[int, ...], dtype: torch.dtype | None = None) -> list[Tensor]:
    """Random tensors that need gradients."""
    return [torch.randn(size, dtype=dtype, requires_grad=True) for size in sizes]


# --- Attentions -----------------------------------------------------------------------------------


def bixt(batch, shared, heads, latents, tokens, d, update_latents=True) -> Case:
    inputs = learned(*[(shared, heads, latents, d), (batch, heads, tokens, d)] * 2)
    inputs[3] = inputs[3] if update_latents else None
    return lambda *x: bidirectional.bidirectional_attention(*x, 0.25), inputs


def xca(batch, n, c, heads) -> Case:
    """With the projection that gives queries, keys and values."""
    inputs = learned((batch, n, c), (3 * c, c), (3 * c,), (heads, 1, 1))
    return lambda *x: cross_covariance.cross_covariance(linear(*x[:3]), x[3]), inputs


def routed(batch, regions, tokens, heads, d, topk, masked=False) -> Case:
    inputs, valid = learned(*[(batch, regions, tokens, heads, d)] * 3), None
    if masked:  # the last region and every second token of the others
        valid = (torch.arange(tokens) % 2 == 0).repeat(regions, 1)
        valid[1:] &= torch.arange(1, regions)[:, None] < max(regions - 1, 2)
    routes = routing.route(inputs[0].flatten(3), inputs[1].flatten(3), topk, valid)
    return lambda *x: routing.routing_attention(*x, routes, 0.3, valid), inputs


def plain(batch, heads, queries, keys, d, masked=False) -> Case:
    hidden = (torch.arange(keys) % 3 == 0).expand(queries, keys)
    mask = torch.zeros(queries, keys).masked_fill(hidden, -torch.inf) if masked else None

    def attend(q, k, v):
        return fused_attention(q, k, v, d**-0.5, None if mask is None else mask.to(q.dtype))

    return attend, learned(*[(batch, heads, n, d) for n in (queries, keys, keys)])


def bisa(lead, n, heads, d, bias=None, **options) -> Case:
    """Groups of tokens; with a bias of the scores, which is learned."""
    sizes = [(*lead, n, heads * d)] + ([] if bias is None else [(*bias, n, n)])
    return attention.BidirectionalSelfAttention(heads * d, heads, **options), learned(*sizes)


SHAPES = {  # the first of each represents it where shapes do not matter
    bixt: {
        'latents shared by the batch': (3, 1, 6, 64, 50, 32),
        'one token': (2, 2, 2, 8, 1, 16),
        'tokens only': (2, 2, 2, 5, 7, 3, False),
    },
    xca: {
        'many tokens': (2, 64, 16, 2),
        'fewer tokens than channels': (1, 10, 48, 4),
        'odd sizes, batch 3': (3, 77, 15, 5),
        'one channel a head': (2, 20, 4, 4),
    },
    routed: {
        'odd sizes': (2, 15, 7, 3, 5, 2, True),
        'stage 1 of BiFormer-T': (1, 64, 16, 2, 32, 1),
        'stage 3, some padding': (1, 49, 4, 8, 32, 16, True),
        'all regions': (2, 4, 6, 2, 8, 4),
        'one region': (1, 1, 9, 1, 4, 1, True),
        'one token in a region, batch 3': (3, 9, 1, 2, 8, 4),
    },
    plain: {
        'more keys than queries': (2, 3, 5, 50, 32),
        'masked': (2, 3, 16, 49, 8, True),
        'one key': (1, 2, 9, 1, 4),
    },
    bisa: {
        'windows': ((2, 4), 49, 3, 32, (4, 3)),
        'one bias for all windows': ((5,), 16, 2, 8, (2,)),
        'no bias': ((2,), 25, 3, 16),
        'one token': ((2,), 1, 1, 8, (1,)),
    },
}
ATTENTIONS = {
    f'{make.__name__}: {label}': partial(make, *shape)
    for make, shapes in SHAPES.items()
    for label, shape in shapes.items()
}
FIRST = [f'{make.__name__}: {next(iter(shapes))}' for make, shapes in SHAPES.items()]


# --- Modules --------------------------------------------------------------------------------------


def module(name, options, *sizes) -> Case:
    kind = name.partition(',')[0]
    return getattr(attention if kind in attention.__all__ else layers, kind)(*options), learned(
        *sizes
    )


class InWindows(nn.Module):
    """Attention in windows with the bias that a network gives it."""

    def __init__(self, attention: nn.Module, windows: Windows) -> None:
        super().__init__()
        self.attention, self.windows = attention, windows

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, self.windows.shift_bias(x), self.windows)


def windowed(size, shift=0, kind=attention.BidirectionalWindowAttention, **options) -> Case:
    attend = kind(96, num_heads=3, window_size=7, **options)
    nn.init.normal_(attend.relative_position_bias_table)
    return InWindows(attend, Windows(*size, 7, shift)), learned((2, *size, 96))


def in_regions(size, num_regions=3, **options) -> Case:
    """On regions that differ clearly, so that routes do not depend on the precision."""
    row, column = (torch.arange(n) // -(-n // num_regions) for n in size)
    kinds = 2 * torch.randn(num_regions, num_regions, 64)
    x = kinds[row[:, None], column] + 0.3 * torch.randn(2, *size, 64)
    return attention.RoutingAttention(64, 2, 3, num_regions, **options), [x.requires_grad_()]


SIMPLE = {  # by the class: its arguments, and the sizes of its inputs
    'BidirectionalAttention': ((192, 6), (1, 64, 192), (3, 77, 192)),
    'BidirectionalAttention, tokens only': ((30, 3, False), (2, 5, 30), (2, 77, 30)),
    'LatentAttention': ((192, 6), (2, 64, 192), (2, 77, 192)),
    'CrossCovarianceAttention, XCiT-T': ((192, 4), (2, 20 * 21, 192)),
    'CrossCovarianceAttention, odd sizes, batch 3': ((15, 5), (3, 77, 15)),
    'CrossCovarianceAttention, few tokens': ((192, 4), (1, 77, 192)),
    'FullAttention': ((64,), (2, 7, 9, 64)),
    'SelfAttention': ((192, 6), (2, 77, 192)),
    'ClassAttention': ((192, 4), (3, 78, 192)),
    'ConvPatchEmbed': ((96, 8), (2, 3, 45, 71)),
    'LinearPatchEmbed': ((96, 8), (2, 3, 45, 71)),
    'LinearPatchEmbed, large patches': ((96, 8, 3, 32), (2, 3, 45, 71)),
}
MODULES = {name: partial(module, name, *about) for name, about in SIMPLE.items()} | {
    'RoutingAttention': partial(in_regions, (12, 15)),
    'RoutingAttention, padding': partial(in_regions, (13, 10)),
    'RoutingAttention, padding of the authors': partial(in_regions, (13, 10), padding='legacy'),
    'BiSA in windows': partial(windowed, (14, 21)),
    'WindowAttention, shifted': partial(windowed, (17, 10), 3, attention.WindowAttention),
    'BiSA in windows, learned, shifted': partial(windowed, (17, 10), 3, lam='learned'),
    'BiSA in windows, smaller than a window': partial(windowed, (2, 5), 3),
    'BiSA in windows, one token': partial(windowed, (1, 1)),
    'BiSA in windows, layer norm': partial(windowed, (14, 7), branch_norm='layer'),
    'BiSA in windows, additive, shifted': partial(windowed, (17, 10), 3, projection='additive'),
}
CASES = ATTENTIONS | MODULES


# --- Networks -------------------------------------------------------------------------------------


def network(config, *size) -> Case:
    """In training mode, but without drops; other weights for each seed of torch."""
    seed = 1 + torch.initial_seed()
    return build(config, seed, drop_path_rate=0.0).train(), [torch.randn(2, 3, *size)]


def next_regions(queries: Tensor, keys: Tensor, topk: int, valid: Tensor | None = None) -> Tensor:
    """In place of ``route``: each region and those after it, if they have valid tokens.

    Otherwise rounding decides about some routes in a deep network.
    """
    batch, regions = queries.shape[:2]
    place = torch.arange(regions, device=queries.device)
    distance = (place - place[:, None]) % regions
    if valid is not None:
        distance = distance + regions * ~valid.any(1)
    nearest = distance.topk(min(topk, regions), largest=False).indices
    return nearest.expand(batch, -1, -1)


# no stage of a network divides the sides of its images evenly
BACKBONES = {name: partial(network, config, 57, 90) for name, config in FAMILIES.items()} | {
    name: partial(network, config, 200, 264) for name, config in NETWORKS.items()
}
