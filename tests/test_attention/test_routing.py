"""Routing attention: goldens, padding, routes."""

import pytest
import torch
from helpers import assert_close, formulation, golden
from reference import fill

from mmbixt.attention import RoutingAttention, routing
from mmbixt.attention.routing import region_side, route

GOLDENS = {
    'biformer_bra__nwin7__28x28': (7, (28, 28), 5),
    'biformer_bra__nwin8_autopad__17x25': (8, (17, 25), 6),
}


@pytest.mark.parametrize('path', ['fast', 'definition'])
@pytest.mark.parametrize('name', GOLDENS)
def test_golden(name, path):
    num_regions, size, seed = GOLDENS[name]
    attention = fill.fill_module(RoutingAttention(64, 2, 4, num_regions, padding='legacy'))
    x = torch.from_numpy(fill.tensor((1, *size, 64), seed))
    with torch.no_grad(), formulation(path):
        out, routes = attention(x), attention.route(x, attention.regions(*size))[3]
    reference = golden(name)
    assert reference.check('out', out.numpy()) < 2e-5
    expected = torch.from_numpy(reference.data['r_idx']).long()
    assert torch.equal(routes.sort(-1).values, expected.sort(-1).values)


def by_hand(attention, x):
    """Masked routing attention of one image (H,W,C), query by query, without any padding."""
    height, width, channels = x.shape
    regions = attention.regions(height, width)
    q, k, v = attention.qkv(x).chunk(3, dim=-1)
    places = {}
    for i in range(height):
        for j in range(width):
            places.setdefault((i // regions.height, j // regions.width), []).append((i, j))
    means = {
        r: [torch.stack([m[p] for p in ps]).mean(0) for m in (q, k)] for r, ps in places.items()
    }
    out = torch.empty_like(x)
    heads, d = attention.num_heads, channels // attention.num_heads
    for region, inside in places.items():
        order = sorted(places, key=lambda r: -float(means[region][0] @ means[r][1]))
        seen = [p for r in order[: attention.topk] for p in places[r]]
        for p in inside:
            for h in range(heads):
                part = slice(h * d, (h + 1) * d)
                scores = torch.stack([q[p][part] @ k[s][part] for s in seen]) * channels**-0.5
                out[p][part] = scores.softmax(0) @ torch.stack([v[s][part] for s in seen])
    lepe = attention.lepe(v.permute(2, 0, 1)[None])[0].permute(1, 2, 0)
    return attention.wo(out + lepe)


@pytest.mark.parametrize('topk', [1, 4, 16, 49])
def test_regions_by_the_size_are_near_those_of_equation_9(topk):
    attention = RoutingAttention(8, 1, topk, 'auto')
    for size in [*((n, n) for n in range(1, 150)), (32, 104), (9, 250), (1, 1), (1, 90), (200, 3)]:
        rows, columns, height, width = attention.regions(*size)
        cells = size[0] * size[1]
        for count, side, length in zip((rows, columns), (height, width), size, strict=True):
            assert count * side >= length > (count - 1) * side  # no region contains padding only
            ideal = (2 * cells / topk) ** (1 / 6)
            assert ideal < 1 or side == length or 0.7 < side / ideal < 1.5
        assert rows * columns >= min(topk, cells)  # else a region is one cell
        if size[0] == size[1] and cells >= 4 * topk:
            ideal = (topk / 2 * cells**2) ** (1 / 6)
            assert 0.7 < rows / ideal < 1.5
    for height, width in [(n, n) for n in (16, 48, 64, 128, 160, 512)] + [(128, 256), (200, 336)]:
        assert not any(n % region_side(n, height * width, topk) for n in (height, width))


@pytest.mark.parametrize('num_regions', [4, 'auto'])
@pytest.mark.parametrize('size', [(5, 7), (3, 2), (1, 1), (9, 8)])
@pytest.mark.parametrize('path', ['fast', 'definition'])
def test_masked_padding_takes_no_part(size, num_regions, path):
    """Also where most regions contain padding only."""
    attention = RoutingAttention(16, 2, 3, num_regions).double()
    x = torch.randn(1, *size, 16, dtype=torch.float64)
    with torch.no_grad(), formulation(path):
        assert_close(attention(x)[0], by_hand(attention, x[0]), 1e-12)


def test_routes_do_not_depend_on_autocast():
    x = torch.randn(1, 16, 4, 8)
    with torch.autocast('cpu', torch.bfloat16):
        half = route(x, x.flip(1), 3)
    assert torch.equal(half, route(x, x.flip(1), 3))


@pytest.mark.parametrize('has_padding', [False, True])
def test_attention_with_a_mask_for_the_routes_equals_the_definition(has_padding):
    """It runs on GPUs only, and is called here."""
    q, k, v = (torch.randn(2, 6, 4, 2, 8).double().requires_grad_() for _ in range(3))
    valid = (torch.arange(24).view(6, 4) % 4 < 3) if has_padding else None
    routes = routing.route(q.flatten(3), k.flatten(3), 3, valid)
    outcomes = []
    attentions = {'fast': routing.attend_masked, 'definition': routing.routing_attention}
    for path, attend in attentions.items():
        with formulation(path):
            out = attend(q, k, v, routes, 0.3, valid)
        outcomes.append([out, *torch.autograd.grad(out.sin().sum(), (q, k, v))])
    assert_close(*outcomes, 1e-11)
