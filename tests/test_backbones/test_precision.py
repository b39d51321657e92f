"""Deep networks in half precision are as near to float64 as by the definitions, and finite where
these are."""

import math
from collections import deque

import pytest
from helpers import image, others_in_zoo
from parity import PRECISIONS, errors
from variants import build

from mmbixt.attention import RoutingAttention, routing

HALF = [name for name in PRECISIONS if name not in ('fp32', 'TF32')]
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
@pytest.mark.parametrize('family', DEEP)
def test_deep_networks(family, precision, size, monkeypatch):
    network, routes, route = build(DEEP[family]).eval(), deque(), routing.route
    count = sum(isinstance(m, RoutingAttention) for m in network.modules())

    def of_the_first(*arguments):
        """A route is right or wrong, and the rest follows it: all take those of the first."""
        routes.append(routes.popleft() if len(routes) == count else route(*arguments))
        return routes[-1]

    monkeypatch.setattr(routing, 'route', of_the_first)
    x, precision = IMAGES[size](image(2, 80, 112)), PRECISIONS[precision]
    for part, error in errors(lambda: (network, [x]), precision).items():
        if not math.isfinite(error.definition):  # gradients of what is not finite mean nothing
            break
        assert error.ours <= 1.5 * (error.definition + precision.unit), (part, error)
