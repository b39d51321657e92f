"""BiSA: attentions in turn, an MLP instead of the hypernetwork, instance norms."""

import copy

import pytest
import torch
from helpers import assert_close, formulation, golden
from reference import fill
from torch.nn.functional import gelu

from mmbixt.layers.softmax_attention import SelfAttention, split_heads
from projects.ablations.bisa_swin import WindowAblation


def window_attention(*sizes, **options):
    stock = dict(bisa_order='parallel', projection='hypernetwork', branch_norm=None)
    return WindowAblation(*sizes, **stock | options)


@pytest.mark.parametrize('path', ['fast', 'definition'])
def test_golden_of_the_instance_norm(path):
    attention = fill.fill_module(window_attention(96, 3, 7, branch_norm='instance'))
    torch.nn.init.zeros_(attention.relative_position_bias_table)
    attention.proj = torch.nn.Identity()  # was stored before the projection
    with torch.no_grad(), formulation(path):
        output = attention(torch.from_numpy(fill.tensor((1, 49, 96), 9)))
    assert golden('bisa__n49_c96_h3').check('in_bisa', output[0].numpy()) < 2e-5


@pytest.mark.parametrize('projection', ['hypernetwork', 'mlp'])
@pytest.mark.parametrize('autocast', [False, True])
def test_instance_norm_of_an_even_area_in_half_precision(projection, autocast):
    """The tokens differ by a small bias only; the norm must not amplify rounding errors."""
    attention = window_attention(24, 2, 4, branch_norm='instance', projection=projection)
    torch.nn.init.normal_(attention.relative_position_bias_table, std=0.02)
    attention.proj = torch.nn.Identity()
    half = attention.bfloat16()
    attention = copy.deepcopy(half).float()
    x = torch.randn(24).bfloat16().expand(1, 16, 24)
    with torch.autocast('cpu', torch.bfloat16, enabled=autocast):
        output = attention(x.float()) if autocast else half(x)
    output.sum().backward()
    truth = attention.double()(x.double())
    assert output.dtype == torch.bfloat16
    assert (output - truth).norm() < 0.02 * truth.norm()


@pytest.mark.parametrize('projection', ['hypernetwork', 'mlp'])
def test_one_attention_on_the_output_of_the_other(projection):
    """Compared with parallel attention of the same weights: lam=0 is inverse, lam=1 plain."""
    both, plain = window_attention(12, 3, 3, projection=projection, lam=0), SelfAttention(12, 3)
    both.proj = plain.proj = torch.nn.Identity()
    plain.qkv = both.qkv
    x = torch.randn(2, 9, 12)
    for order, expected in (('misa_msa', plain(both(x))), ('msa_misa', both(plain(x)))):
        in_turn = window_attention(12, 3, 3, bisa_order=order, projection=projection)
        in_turn.proj = torch.nn.Identity()
        in_turn.load_state_dict(both.state_dict())
        assert_close(in_turn(x), expected)


def test_mlp_in_place_of_the_hypernetwork():
    """As many parameters, and the formula of the docstring for each window and pair of tokens."""
    sizes = []
    for projection in ('hypernetwork', 'mlp'):
        attention = window_attention(96, 3, 7, projection=projection, lam=0)
        sizes.append(sum(p.numel() for p in attention.parameters()))
    assert sizes[1] == pytest.approx(sizes[0], abs=32)
    attention.proj = torch.nn.Identity()
    x, isa = torch.randn(2, 49, 96), attention.isa
    q, k, _ = split_heads(attention.qkv(x), 3, 3)
    q_hat, v_hat = (split_heads(gelu(layer(x)), 1, 3)[0] for layer in (isa.q, isa.v))
    L = (q @ k.transpose(-2, -1) * 32**-0.5).softmax(dim=-2)  # over the queries
    values = (L[..., None] * v_hat[..., None, :, :]).sum(-2)
    inverse = isa.G(torch.cat((values, q_hat), dim=-1))
    assert_close(attention(x), inverse.transpose(1, 2).flatten(2))
