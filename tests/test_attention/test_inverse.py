"""Inverse attention: goldens, the paper's algorithm and designs, its bilinear product."""

import copy

import numpy as np
import pytest
import torch
from cases import ATTENTIONS, learned
from helpers import assert_close, formulation, golden, official_shapes
from reference import fill, misa_naive
from torch.nn.functional import gelu

from mmbixt.attention import BidirectionalSelfAttention, BidirectionalWindowAttention
from mmbixt.attention.inverse import InverseAttention, bilinear
from mmbixt.backbones import BiSASwin
from mmbixt.checkpoints.state_dict import take_part
from mmbixt.layers.softmax_attention import split_heads

CASES = ('plain_bisa', 'rpb_bisa', 'rpbmask_bisa')
PARTS = torch.arange(49) // 7 // 4 * 2 + torch.arange(49) % 7 // 4  # of a window shifted by 3
CORNER = -100.0 * (PARTS[:, None] != PARTS)
SMALL = dict(embed_dims=96, depths=(1,), num_heads=(3,))


def window(number=1):
    return torch.from_numpy(fill.tensor((number, 49, 96), 9))


def filled(name, *shape):
    return torch.from_numpy(fill.fill_value(name, shape))


@pytest.mark.parametrize('path', ['fast', 'definition'])
@pytest.mark.parametrize('case', CASES)
def test_golden(case, path):
    attention = fill.fill_module(BidirectionalWindowAttention(96, num_heads=3))
    if not case.startswith('rpb'):
        torch.nn.init.zeros_(attention.relative_position_bias_table)
    with torch.no_grad(), formulation(path):
        output = attention(window(), CORNER if 'mask' in case else None)
    assert golden('bisa__n49_c96_h3').check(case, output[0].numpy()) < 2e-5


@pytest.mark.parametrize('path', ['fast', 'definition'])
@pytest.mark.parametrize('case', ['plain', 'biased'])
@torch.no_grad()
def test_golden_of_the_authors_equation_2(case, path):
    isa, state = InverseAttention(96, num_heads=3), {}
    for name, theirs in (('q', 'input_proj'), ('v', 'expert_proj')):
        state[f'{name}.weight'] = filled(f'{theirs}.weight', 96, 96)
        if case == 'biased':
            isa.get_submodule(name).bias = torch.nn.Parameter(filled(f'{theirs}.bias', 96))
    # (output and query, value) to (value, query, output)
    G = filled('weight_generator.weight', 1024, 32).unflatten(0, (32, 32)).permute(2, 1, 0)
    isa.load_state_dict(isa.state_dict() | state | {'G': G})
    scores = torch.from_numpy(fill.tensor((2, 3, 49, 49), 10))
    with formulation(path):
        output = isa(window(2), scores)
    assert golden('isa_authors__n49_c96_h3').check(case, output.numpy()) < 2e-5


@pytest.mark.parametrize('path', ['fast', 'definition'])
@pytest.mark.parametrize('case', ['plain', 'masked'])
@torch.no_grad()
def test_golden_of_the_authors_module(case, path):
    names, block = official_shapes('bisa_swin_tiny_additive'), 'layers.0.blocks.0.attn.'
    shapes = {key.removeprefix(block): x for key, x in names.items() if key.startswith(block)}
    state = {block + key: filled(key, *x) for key, x in shapes.items() if 'index' not in key}
    backbone = BiSASwin(SMALL, projection='additive', lam='learned')
    attention = backbone.stages[0].blocks[0].attn
    attention.load_state_dict(take_part(backbone.convert(state), 'stages.0.blocks.0.attn.'))
    mask = torch.stack((torch.zeros(49, 49), CORNER))[:, None] if case == 'masked' else None
    with formulation(path):
        output = attention.w_msa(window(2), mask)
    assert golden('bisa_attention_authors__n49_c96_h3').check(case, output.numpy()) < 2e-5


@pytest.mark.parametrize('projection', ['hypernetwork', 'additive'])
@torch.no_grad()
def test_layer_norm_of_each_token(projection):
    both, *one = (
        BidirectionalSelfAttention(12, 3, lam, projection=projection, **norm).double()
        for lam, norm in ((0.25, dict(branch_norm='layer')), (1, {}), (0, {}))
    )
    expected, x = 0, torch.randn(2, 9, 12, dtype=torch.float64)
    for branch, share in zip(one, (0.25, 0.75), strict=True):
        branch.load_state_dict(both.state_dict(), strict=False)
        branch.proj = torch.nn.Identity()
        y = branch(x)
        y = y - y.mean(-1, keepdim=True)
        expected += share * y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    assert_close(both(x), both.proj(expected), 1e-12)


@pytest.mark.parametrize('lam', [0.99, 'learned'])
@torch.no_grad()
def test_half_precision_keeps_a_small_share(lam):
    """Rounded to bfloat16, 0.99 is 0.988, so that a share of 0.01 would be 0.012."""
    attention = BidirectionalSelfAttention(24, 2, lam, lam_init=0.99).bfloat16()
    attention.proj = torch.nn.Identity()
    attention.qkv.weight[48:] = attention.qkv.bias[48:] = 0  # of the values of self-attention
    x = torch.randn(3, 10, 24).bfloat16()
    truth = copy.deepcopy(attention).double()(x.double())
    assert (attention(x) - truth).norm() < 0.02 * truth.norm()


# --- Compared with Algorithm 1 of the paper -------------------------------------------------------

BISA = [name for name in ATTENTIONS if name.startswith('bisa')]


@pytest.mark.parametrize('path', ['fast', 'definition'])
@pytest.mark.parametrize('name', BISA)
@torch.no_grad()
def test_equals_algorithm_1(name, path):
    attention, inputs = ATTENTIONS[name]()
    attention, (x, *bias) = attention.double(), [x.double() for x in inputs]
    attention.proj, attention.fixed_lam, isa = torch.nn.Identity(), 0.25, attention.isa
    with formulation(path):
        out = attention(x, *bias)
    heads = attention.num_heads
    q, k, v = split_heads(attention.qkv(x), 3, heads)
    q_hat, v_hat = (split_heads(gelu(layer(x)), 1, heads)[0] for layer in (isa.q, isa.v))
    scores = sum(bias, q @ k.transpose(-2, -1) * attention.scale)
    groups = (y.flatten(0, -4).numpy() for y in (scores, v, q_hat, v_hat))
    for m, v, q_hat, v_hat, found in zip(*groups, out.flatten(0, -3).numpy(), strict=True):
        expected = 0.25 * misa_naive.msa(m, v)
        expected += 0.75 * misa_naive.misa_naive(m, q_hat, v_hat, isa.G.numpy())
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


# --- The bilinear product -------------------------------------------------------------------------


def by_einsum(left, right, weight):
    return torch.einsum('...a,...b,abc->...c', left, right, weight)


def gradients(compute, *inputs):
    return torch.autograd.grad(compute(*inputs).sin().sum(), inputs, create_graph=True)


@pytest.mark.parametrize('rows', [5, 9000], ids=['one block', 'several blocks'])
def test_bilinear_product_and_its_derivatives(rows):
    inputs = learned((rows, 16), (rows, 16), (16, 16, 3), dtype=torch.float64)

    def run(compute):
        first = gradients(compute, *inputs)
        all_of_them = torch.cat([x.flatten() for x in first])
        return [compute(*inputs), *first, *gradients(lambda *_: all_of_them, *inputs)]

    assert_close(run(bilinear), run(by_einsum), 1e-12)


def test_gradient_of_the_weight_in_half_precision():
    """Blocks of rows are added in float32: a sum in bfloat16 would be wrong by one per cent."""
    inputs = [
        0.3 + torch.randn(size).bfloat16() for size in ((60000, 32), (60000, 32), (32, 32, 4))
    ]
    inputs = [x.bfloat16().requires_grad_() for x in inputs]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    *_, found = torch.autograd.grad(bilinear(*inputs).sum(), inputs)
    *_, expected = torch.autograd.grad(by_einsum(*exact).sum(), exact)
    assert found.dtype == torch.bfloat16
    assert (found - expected).norm() < 4e-3 * expected.norm()
