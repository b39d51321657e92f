"""The ops on inputs of many shapes, and the comparison of a fast path with the reference."""

from collections.abc import Callable, Sequence

import torch
from helpers import assert_close
from torch import Tensor

from mmbixt import ops
from mmbixt.backbones.bisa_swin import shift_mask
from mmbixt.ops.window_attention import Scores, Windows


def learned(*sizes: tuple[int, ...], dtype: torch.dtype = torch.float32, factor: float = 1.0):
    """Random tensors that need gradients."""
    return [(factor * torch.randn(size, dtype=dtype)).requires_grad_() for size in sizes]


def with_gradients(function: Callable, inputs: Sequence) -> tuple[list[Tensor], list]:
    """The results, and a gradient for each input that needs one; None where it is not used."""
    results = function(*inputs)
    results = [results] if isinstance(results, Tensor) else [x for x in results if x is not None]
    loss = sum((x * torch.cos(torch.arange(x.numel())).to(x).view_as(x)).sum() for x in results)
    given = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    return results, list(torch.autograd.grad(loss, given, allow_unused=True))


def on(path: str, function: Callable, inputs: Sequence) -> tuple[list[Tensor], list]:
    with ops.use_ops(path):
        return with_gradients(function, inputs)


def assert_same(actual: tuple[list, list], expected: tuple[list, list], tolerance: float) -> None:
    """Gradients are compared on one scale, because some are zero within rounding."""
    for ours, theirs in zip(actual[0], expected[0], strict=True):
        assert_close(ours, theirs, tolerance)
    scale = max((float(x.abs().max()) for x in expected[1] if x is not None), default=1.0)
    for ours, theirs in zip(actual[1], expected[1], strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or (ours - theirs).abs().max() <= tolerance * scale


# Each of these functions returns an op and inputs of a shape; options are those of `learned`.


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

    def compute(x, weight, bias, *layers):
        return ops.feed_forward(x, ops.FeedForwardWeights(weight, bias, 1e-6, *layers), not plain)

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

    def attend(*x):
        return ops.bidirectional_self_attention(*x[:6], d**-0.5, *x[6:])

    return attend, learned(*sizes, **options)


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
    mask = shift_mask(inputs[3].detach(), size, shift) if shift else None

    def attend(qkv, fill, table, *others):
        op = ops.bidirectional_window_attention if others else ops.window_attention
        return op(qkv, fill, *others, cut, Scores(c**-0.5, table, index, mask))

    return attend, inputs if both else inputs[:3]


def linear(tokens, c, out, bias=True, **options):
    sizes = [(*tokens, c), (out, c), (out,)]
    return ops.linear, learned(*sizes[: 2 + bias], **options)


def norm(*shape, **options):
    return lambda *x: ops.layer_norm(*x, 1e-6), learned(shape, shape[-1:], shape[-1:], **options)


CASES = {  # the first case of each op is used where shapes do not matter
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
}
FIRST = {make.__name__: (make, *next(iter(shapes.values()))) for make, shapes in CASES.items()}
