"""Networks in half precision are as near to float64 as in the plain order, and finite where that
is: on a processor, and in the order of operations of a GPU."""

import math
from collections import deque

import pytest
from helpers import image, others_in_zoo
from torch.nn.attention import SDPBackend, sdpa_kernel
from variants import build

from mmbixt.gpu_check import parity
from mmbixt.layers import RoutingAttention, routing_attention
from mmbixt.ops import dispatch

HALF = {p.name: p for p in parity.PRECISIONS if p.name not in ('fp32', 'TF32')}
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
IMAGES = {
    'normal': lambda x: x,
    'small': lambda x: 1e-4 * x,
    'large': lambda x: 1e3 * x,
    'a large mean': lambda x: x + 100,
    'even': lambda x: x.mean((2, 3), keepdim=True).expand_as(x),
}


@pytest.mark.parametrize('size', others_in_zoo(IMAGES, ['normal']))
@pytest.mark.parametrize('precision', others_in_zoo(HALF, ['bf16', 'amp bf16']))
@pytest.mark.parametrize('processor', ['cpu', 'none'], ids=['on a processor', 'as on a GPU'])
@pytest.mark.parametrize('family', DEEP)
def test_deep_networks(family, processor, precision, size, monkeypatch):
    monkeypatch.setattr(dispatch, '_PROCESSOR', processor)
    network, routes, route = build(DEEP[family]).eval(), deque(), routing_attention.best_routes
    count = sum(isinstance(m, RoutingAttention) for m in network.modules())

    def of_the_first(*arguments):
        """A route is right or wrong, and the rest follows it: all take those of the first."""
        routes.append(routes.popleft() if len(routes) == count else route(*arguments))
        return routes[-1]

    monkeypatch.setattr(routing_attention, 'best_routes', of_the_first)
    make = lambda: (network, [IMAGES[size](image(2, 80, 112))])  # noqa: E731
    # the fused kernel for processors has no gradient for a bias
    kernels = [SDPBackend.MATH] if processor == 'none' else list(SDPBackend.__members__.values())
    with sdpa_kernel(kernels):
        found = parity.check(make, 'cpu', 'eager', HALF[precision])
    for part in ('results', 'gradients'):
        ours, plain = found[part]
        if not math.isfinite(plain):  # gradients of what is not finite mean nothing
            break
        assert ours <= 1.5 * (plain + HALF[precision].unit), found
