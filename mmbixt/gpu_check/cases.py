"""Every op and layer on inputs of many shapes: shapes of networks, and unusual shapes.

The tests run the same cases on processors, so a wrong case fails before it needs a GPU.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from mmbixt import layers, ops
from mmbixt.ops.add_norm import add_norm, bias_gelu
from mmbixt.ops.window_attention import Scores, Windows


class Call(nn.Module):
    """A function or a module, and its inputs.

    All floating-point tensors are parameters, so ``.to()`` takes them to a device and a dtype.
    """

    def __init__(self, function: Callable, inputs: Sequence[Any]) -> None:
        super().__init__()
        self.function = function
        self.inputs = nn.ParameterList(
            nn.Parameter(x, x.requires_grad) if isinstance(x, Tensor) else x for x in inputs
        )


def learned(*sizes: tuple[int, ...], dtype: torch.dtype | None = None, factor: float = 1.0):
    """Random tensors that need gradients."""
    return [(factor * torch.randn(size, dtype=dtype)).requires_grad_() for size in sizes]


# --- Ops: each of these makes a function and its inputs, of a shape, with options of `learned` ---


def bixt(batch, shared, heads, latents, tokens, d, **options):
    sizes = [(shared, heads, latents, d), (batch, heads, tokens, d)] * 2
    return lambda *x: ops.bidirectional_attention(*x, 0.25), learned(*sizes, **options)


def xca(batch, n, c, heads, bias=True, scale=False, **options):
    sizes = [(batch, n, c), (3 * c, c), (3 * c,), (heads, 1, 1), (c, c), (c,), (c,)]
    inputs = learned(*sizes, **options)
    inputs[2] = inputs[2] if bias else None
    return ops.cross_covariance_attention, inputs if scale else inputs[:-1]


def mlp(tokens, c, hidden, plain=False, **options):
    """``plain``: without a scale and a residual."""
    sizes = [(*tokens, c), (c,), (c,), (hidden, c), (hidden,), (c, hidden), (c,), (c,)]
    inputs = learned(*sizes, **options)

    def compute(x, weight, bias, *others):
        return ops.feed_forward(x, ops.FeedForwardWeights(weight, bias, 1e-6, *others), not plain)

    return compute, inputs[:-1] if plain else inputs


def routing(batch, regions, tokens, heads, d, topk, masked=False, **options):
    inputs, valid = learned(*[(batch, regions, tokens, heads, d)] * 3, **options), None
    if masked:  # the last region and every second token of the others
        valid = (torch.arange(tokens) % 2 == 0).repeat(regions, 1)
        valid[1:] &= torch.arange(1, regions)[:, None] < max(regions - 1, 2)
    routes = ops.route(inputs[0], inputs[1], topk, valid)
    return lambda *x: ops.routing_attention(*x, routes, 0.3, valid), inputs


def inverse(lead, n, d, s, bias, **options):
    sizes = [(*lead, n, d)] * 3 + [(*lead, n, s)] * 2 + [(s, s, d)]
    sizes += [] if bias is None else [(*bias, n, n)]
    attend = ops.bidirectional_self_attention
    return lambda *x: attend(*x[:6], d**-0.5, *x[6:]), learned(*sizes, **options)


def alone(lead, n, d, bias=None, learn_bias=False, **options):
    sizes = [(*lead, n, d)] * 3 + ([] if bias is None else [(*bias, n, n)])
    inputs = learned(*sizes, **options)
    for x in inputs[3:]:  # the fused kernel for processors has no gradient for it
        x.requires_grad_(learn_bias)
    return lambda *x: ops.self_attention(*x[:3], d**-0.5, *x[3:]), inputs


def windows(maps, heads, d, size, shift, both=False, **options):
    c, positions = heads * d, (2 * size - 1) ** 2
    sizes = [(*maps, 3 * c), (3 * c,), (positions, heads), (*maps, c), (*maps, c), (d, d, d)]
    inputs = learned(*sizes, **options)
    cut = Windows.of(inputs[0], size, shift)
    index = torch.randint(positions, (size**2, size**2))
    mask = parts_apart(cut.per_map, size) if shift else None

    def attend(qkv, fill, table, *others):
        op = ops.bidirectional_window_attention if others else ops.window_attention
        seen = None if mask is None else mask.to(table.dtype)
        return op(qkv, fill, *others, cut, Scores(c**-0.5, table, index, seen))

    return attend, inputs if both else inputs[:3]


def parts_apart(count: int, size: int) -> Tensor:
    """A mask (windows,1,N,N) as for shifted windows: tokens attend only within their part."""
    parts = torch.randint(3, (count, size**2))
    return -100.0 * (parts[:, None, :, None] != parts[:, None, None, :])


def linear(tokens, c, out, bias=True, **options):
    sizes = [(*tokens, c), (out, c), (out,)]
    return ops.linear, learned(*sizes[: 2 + bias], **options)


def norm(*shape, **options):
    return lambda *x: ops.layer_norm(*x, 1e-6), learned(shape, shape[-1:], shape[-1:], **options)


def residual(shape, scaled=False, **options):
    """``scaled``: a layer scale and stochastic depth, but no bias."""
    inputs = learned(shape, shape, *[shape[-1:]] * 3, **options)
    if not scaled:
        return lambda x, u, bias, w, b: add_norm(x, u, bias, None, None, w, b, 1e-6), inputs
    kept = torch.linspace(0, 2, shape[0], dtype=inputs[0].dtype)
    return lambda x, u, s, w, b: add_norm(x, u, None, s, kept.to(x), w, b, 1e-6), inputs


def gelu(*shape, **options):
    return bias_gelu, learned(shape, shape[-1:], **options)


CASES = {  # the first case of each op represents it where shapes do not matter
    bixt: {
        'latents shared by the batch': (3, 1, 6, 64, 50, 32),
        'one token': (2, 2, 2, 8, 1, 16),
    },
    xca: {
        'twice as many tokens as channels': (2, 64, 16, 2),
        'nano, wide heads': (2, 300, 128, 4, True, True),
        'fewer tokens than channels': (1, 10, 48, 4, False),
        'odd sizes, batch 3': (3, 77, 15, 5, False, True),
        'one channel a head': (2, 20, 4, 4),
    },
    mlp: {
        'odd sizes, batch 3': ((3, 37), 5, 11),
        'XCiT-T12/16': ((2, 50), 192, 768),
        'maps, neither scale nor residual': ((1, 8, 8), 16, 48, True),
    },
    routing: {
        'odd sizes': (2, 15, 7, 3, 5, 2, True),
        'stage 1 of BiFormer-T': (1, 64, 16, 2, 32, 1),
        'stage 3, some padding': (1, 49, 4, 8, 32, 16, True),
        'all regions': (2, 4, 6, 2, 8, 4),
        'one region': (1, 1, 9, 1, 4, 1, True),
        'one token in a region, batch 3': (3, 9, 1, 2, 8, 4),
    },
    inverse: {
        'shifted windows': ((2, 4, 3), 49, 32, 32, (4, 3)),
        'one bias for all windows': ((5, 2), 16, 8, 8, (2,)),
        'no bias': ((2, 3), 25, 16, 16, None),
        'one token': ((2, 1), 1, 8, 8, (1,)),
        'narrow hypernetwork': ((3, 2), 12, 16, 5, (1, 2)),
    },
    alone: {
        'shifted windows': ((2, 4, 3), 49, 32, (4, 3)),
        'no bias': ((2, 3), 25, 16),
    },
    windows: {
        'odd width of heads': ((1, 5, 7), 3, 5, 4, 2, True),
        'stage 1 of Swin-T, shifted': ((1, 28, 28), 3, 32, 7, 3),
        'stage 4, not shifted': ((1, 8, 8), 24, 32, 7, 0, True),
        'sides that no window divides, batch 3': ((3, 10, 17), 2, 8, 7, 3, True),
        'smaller than a window': ((2, 2, 5), 2, 4, 7, 3),
        'windows of one token': ((1, 3, 4), 1, 4, 1, 0, True),
        'one token': ((1, 1, 1), 3, 2, 4, 2),
    },
    linear: {
        'odd sizes, batch 3': ((3, 37), 5, 11),
        'latents of BiXT': ((2, 64), 192, 768, False),
        'maps': ((1, 16, 16), 96, 288),
        'one channel': ((2, 9), 1, 3),
        'fewer tokens than channels': ((5,), 48, 24, False),
    },
    norm: {
        'tokens': (2, 37, 12),
        'maps': (1, 5, 7, 24),
        'one token': (1, 8),
        'one channel': (4, 1),
    },
    residual: {
        'tokens of BiXT': ((2, 37, 192),),
        'odd sizes, batch 3, scaled': ((3, 5, 7, 5), True),
        'one token': ((1, 1, 24),),
        'wide, scaled': ((2, 3, 1100), True),
        'many tokens': ((2, 150, 60),),
    },
    gelu: {
        'hidden values of BiXT': (2, 19, 768),
        'odd sizes, batch 3': (3, 7, 131),
        'one token': (1, 1, 24),
    },
}


# --- Layers: each of these makes a module and its inputs ------------------------------------------


def routed(size, channels=64, num_heads=2, topk=3, num_regions=3, **options):
    """On regions that differ clearly, so that routes do not depend on the precision."""
    attention = layers.RoutingAttention(channels, num_heads, topk, num_regions, **options)
    height, width = size
    row, column = (torch.arange(n) // (-(-n // num_regions)) for n in size)
    kinds = 2 * torch.randn(num_regions, num_regions, channels)
    x = kinds[row[:, None], column] + 0.3 * torch.randn(2, height, width, channels)
    return attention, [x.requires_grad_()]


def windowed(size, shift=0, **options):
    attention = layers.WindowAttention(96, num_heads=3, window_size=7, **options)
    nn.init.normal_(attention.relative_position_bias_table)
    (x,) = learned((2, *size, 96))
    cut = Windows.of(x, 7, shift)
    return attention, [x, parts_apart(cut.per_map, 7) if shift else None, cut]


def grouped(**options):
    attention = layers.BidirectionalSelfAttention(24, num_heads=2, **options)
    return attention, learned((3, 13, 24), (2, 13, 13))


def layer(name, options, *sizes):
    return getattr(layers, name.partition(',')[0])(*options), learned(*sizes)


def interaction(scale):
    interact = layers.LocalPatchInteraction(96)
    tokens, factor = learned((3, 7 * 9, 96), (96,))
    return interact, [tokens, (7, 9), factor if scale else None]


SIMPLE = {  # by the class: its arguments, and the sizes of its inputs
    'BidirectionalAttention': ((192, 6), (1, 64, 192), (3, 77, 192)),
    'BidirectionalAttention, tokens only': ((30, 3, False), (2, 5, 30), (2, 77, 30)),
    'LatentAttention': ((192, 6), (2, 64, 192), (2, 77, 192)),
    'CrossCovarianceAttention, XCiT-T': ((192, 4), (2, 20 * 21, 192), (192,)),
    'CrossCovarianceAttention, few tokens': ((192, 4), (1, 77, 192)),
    'FullAttention': ((64,), (2, 7, 9, 64)),
    'FullAttention, LePE of values': ((64, 8, 'values'), (2, 7, 9, 64)),
    'SelfAttention': ((192, 6), (2, 77, 192)),
    'ClassAttention': ((192, 4), (3, 78, 192)),
    'Mlp': ((48, 101), (3, 37, 48)),
    'ConvPatchEmbed': ((96, 8), (2, 3, 45, 71)),
    'LinearPatchEmbed': ((96, 8), (2, 3, 45, 71)),
}
LAYERS = {name: partial(layer, name, *about) for name, about in SIMPLE.items()} | {
    'LocalPatchInteraction': partial(interaction, False),
    'LocalPatchInteraction, scaled': partial(interaction, True),
    'RoutingAttention': partial(routed, (12, 15)),
    'RoutingAttention, padding': partial(routed, (13, 10)),
    'RoutingAttention, padding of the authors': partial(routed, (13, 10), padding='legacy'),
    'RoutingAttention, floor': partial(routed, (12, 15), floor_regions=True, padding='legacy'),
    'WindowAttention, plain, shifted': partial(windowed, (17, 10), 3, lam=1),
    'WindowAttention': partial(windowed, (14, 21)),
    'WindowAttention, shifted': partial(windowed, (17, 10), 3, lam='learned'),
    'WindowAttention, instance norm': partial(windowed, (14, 7), branch_norm='instance'),
    'BidirectionalSelfAttention': grouped,
    'BidirectionalSelfAttention, in turn': partial(grouped, bisa_order='misa_msa'),
    'BidirectionalSelfAttention, MLP': partial(grouped, projection='mlp'),
}

OPS = {
    f'{make.__name__}: {label}': partial(make, *shape)
    for make, shapes in CASES.items()
    for label, shape in shapes.items()
}
