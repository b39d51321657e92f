"""The ablations of cross-covariance attention, beside tests/test_attention/test_formulations.py."""

import torch

from mmbixt.attention import CrossCovarianceAttention


def test_without_norm_and_temperature():
    """Channels attend by the products of queries and keys, with no factor."""
    module = CrossCovarianceAttention(12, 3, l2_norm=False, learned_temperature=False)
    x = torch.randn(2, 50, 12)
    q, k, v = module.qkv(x).unflatten(-1, (3, 3, 4)).unbind(2)  # (B,N,h,d) each
    attention = torch.einsum('bnhi,bnhj->bhij', q, k).softmax(-1)
    expected = module.proj(torch.einsum('bhij,bnhj->bnhi', attention, v).flatten(2))
    torch.testing.assert_close(module(x), expected)
