import pytest
import torch
from helpers import golden
from reference import fill

from mmbixt.layers import BidirectionalAttention, CrossCovarianceAttention
from mmbixt.ops import use_ops


@pytest.mark.parametrize('path', ['auto', 'reference'])
@pytest.mark.parametrize(('batch', 'tokens'), [(1, 200), (2, 50)])
def test_golden_of_both_directions(path, batch, tokens):
    attention = fill.fill_module(BidirectionalAttention(192, num_heads=6))
    latents = torch.from_numpy(fill.tensor((1, 64, 192), 1))
    with torch.no_grad(), use_ops(path):
        outputs = attention(latents, torch.from_numpy(fill.tensor((batch, tokens, 192), 2)))
    reference = golden(f'bixt_cross_attention__b{batch}_n{tokens}')
    for key, output in zip(('latents', 'tokens'), outputs, strict=True):
        assert reference.check(key, output.numpy()) < 2e-5


def test_without_latent_update_the_tokens_are_the_same():
    full = BidirectionalAttention(32, num_heads=2)
    lean = BidirectionalAttention(32, num_heads=2, update_latents=False)
    lean.load_state_dict(full.state_dict(), strict=False)
    latents, tokens = torch.randn(2, 8, 32), torch.randn(2, 20, 32)
    nothing, updated = lean(latents, tokens)
    assert nothing is None
    torch.testing.assert_close(updated, full(latents, tokens)[1])
    updated.sum().backward()
    assert all(p.grad is not None for p in lean.parameters())


@pytest.mark.parametrize('path', ['auto', 'reference', 'portable', 'cpu'])
def test_golden_between_channels(path):
    attention = fill.fill_module(CrossCovarianceAttention(192, num_heads=4))
    with torch.no_grad(), use_ops(path):
        out = attention(torch.from_numpy(fill.tensor((1, 150, 192), 3)))
    assert golden('xcit_xca').check('out', out.numpy()) < 2e-5
