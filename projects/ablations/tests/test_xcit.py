"""XCiT without parts equals XCiT with parts that do nothing."""

import pytest
import torch
from helpers import assert_close, image

from mmbixt.backbones import XCiT
from projects.ablations import XCiTAblation
from projects.ablations.xcit import Attention

SMALL = dict(embed_dims=16, num_heads=2, depth=2)


@pytest.mark.parametrize(
    ('options', 'absent'),
    [
        (dict(), ()),
        (dict(xca=False), ('.attn.', '.norm1.', '.gamma1')),
        (dict(lpi=False), ('.local_mp.', '.norm3.', '.gamma3')),
        (dict(learned_temperature=False), ('.temperature',)),
    ],
)
def test_parts(options, absent):
    whole, other = XCiT(SMALL).eval(), XCiTAblation(SMALL, **options).eval()
    missing = other.state_dict().keys() ^ whole.state_dict().keys()
    assert missing == {key for key in whole.state_dict() if any(x in key for x in absent)}
    for name, weight in whole.named_parameters():
        if name.endswith(tuple(x for x in absent if 'gamma' in x)):
            torch.nn.init.zeros_(weight)
    other.load_state_dict({k: x for k, x in whole.state_dict().items() if k not in missing})
    x, outputs = image(2, 40, 56), []
    for model in (whole, other):
        outputs.append(model(x))
        sum(y.sin().sum() for y in outputs[-1]).backward()
    assert_close(*outputs)
    assert all(p.grad is not None for p in other.parameters())


def test_without_norm_and_temperature():
    """Channels attend by the products of queries and keys, with no factor."""
    module = Attention(12, 3, l2_norm=False, learned_temperature=False)
    x = torch.randn(2, 50, 12)
    q, k, v = module.qkv(x).unflatten(-1, (3, 3, 4)).unbind(2)  # (B,N,h,d) each
    attention = torch.einsum('bnhi,bnhj->bhij', q, k).softmax(-1)
    expected = module.proj(torch.einsum('bhij,bnhj->bnhi', attention, v).flatten(2))
    assert_close(module(x), expected)
