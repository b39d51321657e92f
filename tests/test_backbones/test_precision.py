"""Whole networks in half precision are as near to float64 as in the plain order, and finite where
that is: on a processor, and in the order of operations of a GPU."""

import pytest
import torch
from helpers import image, only_in_zoo
from torch.nn.attention import SDPBackend, sdpa_kernel
from variants import build

from mmbixt.layers import routing_attention
from mmbixt.ops import dispatch, use_ops

DEEP = {  # as deep as the tiny architectures, and narrow
    'bixt': dict(type='mmbixt.BiXT', arch=dict(embed_dims=16, num_heads=2, depth=12)),
    'xcit': dict(type='mmbixt.XCiT', arch=dict(embed_dims=16, num_heads=4, depth=12), patch_size=8),
    'biformer': dict(
        type='mmbixt.BiFormer',
        arch=dict(embed_dims=(16, 32, 32, 64), depths=(2, 2, 8, 2), topks=(1, 4, 16, -2)),
    ),
    'bisa': dict(
        type='mmbixt.BiSASwin',
        arch=dict(embed_dims=16, depths=(2, 2, 6, 2), num_heads=(1, 2, 4, 8)),
    ),
}
WHOLE = {
    'bixt': dict(type='mmbixt.BiXT', arch='tiny', token_refiner='lpi', patch_embed='conv'),
    'xcit': dict(type='mmbixt.XCiT', arch='tiny12', patch_size=8),
    'biformer': dict(type='mmbixt.BiFormer', arch='tiny'),
    'bisa': dict(type='mmbixt.BiSASwin', arch='tiny'),
}
IMAGES = {
    'normal': lambda x: x,
    'small': lambda x: 1e-4 * x,
    'large': lambda x: 1e3 * x,
    'a large mean': lambda x: x + 100,
    'even': lambda x: x.mean((2, 3), keepdim=True).expand_as(x),
}
PATHS = {  # and the device whose tensors are taken for a processor's
    'plain': ('reference', 'cpu'),
    'auto': ('auto', 'cpu'),
    'auto on a GPU': ('auto', 'none'),
}


@pytest.fixture
def same_routes(monkeypatch):
    """A route is right or wrong, and the rest follows it: all networks take those of the first."""
    route, routes = routing_attention.best_routes, []

    def recorded(*arguments):
        routes.append(route(*arguments))
        return routes[-1]

    def start():
        again = iter(routes)
        follow = recorded if not routes else lambda *_: next(again)
        monkeypatch.setattr(routing_attention, 'best_routes', follow)

    return start


def run(config, x, path, processor='cpu', autocast=None):
    """Feature maps, and the gradients of all weights."""
    dispatch._PROCESSOR = processor
    backbone = build(config).to(x.dtype).eval()
    half = torch.autocast('cpu', autocast, enabled=autocast is not None)
    # the fused kernel for processors has no gradient for a bias
    kernels = [SDPBackend.MATH] if processor == 'none' else list(SDPBackend.__members__.values())
    with use_ops(path), half, sdpa_kernel(kernels):
        maps = backbone(x)
    generator = torch.Generator().manual_seed(0)  # exact in any precision
    grads = [torch.randn(m.shape, generator=generator).bfloat16().to(m.dtype) for m in maps]
    return list(maps), list(torch.autograd.grad(maps, list(backbone.parameters()), grads))


def errors(found, exact):
    return torch.stack([(x.double() - y).norm() for x, y in zip(found, exact, strict=True)])


def check(config, dtype, autocast, change, start):
    x = change(image(2, 80, 112)).to(torch.float32 if autocast else dtype)
    start()
    exact = run(config, x.double(), 'reference')
    found = {}
    for name, (path, processor) in PATHS.items():
        start()
        found[name] = run(config, x, path, processor, dtype if autocast else None)
    plain = found.pop('plain')
    # gradients of what is not finite mean nothing
    kinds = 2 if all(x.isfinite().all() for x in plain[0]) else 1
    for path, ours in found.items():
        for near, x in zip(plain[:kinds], ours, strict=False):
            assert all((b.isfinite() | ~a.isfinite()).all() for a, b in zip(near, x, strict=True))
        if kinds == 2 and all(x.isfinite().all() for x in plain[1]):
            for right, near, x in zip(exact, plain, ours, strict=True):
                theirs, our = errors(near, right), errors(x, right)
                assert our.norm() <= 1.5 * theirs.norm(), path
                assert (our / theirs).nanmedian() <= 1.5, path  # of one it may be luck


@pytest.mark.parametrize('autocast', [False, True])
@pytest.mark.parametrize('family', DEEP)
def test_deep_networks(family, autocast, same_routes, monkeypatch):
    monkeypatch.setattr(dispatch, '_PROCESSOR', 'cpu')  # it is changed on the way
    check(DEEP[family], torch.bfloat16, autocast, IMAGES['normal'], same_routes)


@only_in_zoo
@pytest.mark.parametrize('size', IMAGES)
@pytest.mark.parametrize('autocast', [False, True])
@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
@pytest.mark.parametrize('family', DEEP)
def test_of_any_image(family, dtype, autocast, size, same_routes, monkeypatch):
    monkeypatch.setattr(dispatch, '_PROCESSOR', 'cpu')
    check(DEEP[family], dtype, autocast, IMAGES[size], same_routes)


@only_in_zoo
@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
@pytest.mark.parametrize('family', WHOLE)
def test_whole_architectures(family, dtype, same_routes, monkeypatch):
    monkeypatch.setattr(dispatch, '_PROCESSOR', 'cpu')
    check(WHOLE[family], dtype, True, IMAGES['normal'], same_routes)
