"""Deep networks in half precision are as near to float64 as by the definitions, and finite where
these are."""

from collections import deque

import pytest
from helpers import image, others_in_zoo
from parity import PRECISIONS, assert_as_exact_where_finite
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


@pytest.mark.parametrize('precision', others_in_zoo(HALF, ['bf16', 'amp bf16']))
@pytest.mark.parametrize('family', DEEP)
def test_deep_networks(family, precision, monkeypatch):
    network, routes, route = build(DEEP[family]).eval(), deque(), routing.route
    count = sum(isinstance(m, RoutingAttention) for m in network.modules())

    def of_the_first(*arguments):
        """A route is right or wrong, and the rest follows it: all take those of the first."""
        routes.append(routes.popleft() if len(routes) == count else route(*arguments))
        return routes[-1]

    monkeypatch.setattr(routing, 'route', of_the_first)
    assert_as_exact_where_finite(lambda: (network, [image(2, 80, 112)]), PRECISIONS[precision])
