import copy

import pytest
import torch
from helpers import assert_close, golden
from op_checks import assert_same, with_gradients
from reference import fill, misa_naive
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import gelu

from mmbixt.backbones.bisa_swin import shift_mask
from mmbixt.layers import BidirectionalSelfAttention, WindowAttention
from mmbixt.ops import dispatch, use_ops
from mmbixt.ops.heads import split_heads
from mmbixt.ops.window_attention import Windows

CASES = ('plain_bisa', 'in_bisa', 'rpb_bisa', 'rpbmask_bisa')


def window():
    return torch.from_numpy(fill.tensor((49, 96), 9))[None]


def corner_mask():
    return torch.from_numpy(misa_naive.corner_mask(7, 3)).float()


@pytest.mark.parametrize('path', ['auto', 'reference'])
@pytest.mark.parametrize('case', CASES)
def test_golden(case, path):
    branch_norm = 'instance' if case == 'in_bisa' else None
    attention = fill.fill_module(WindowAttention(96, num_heads=3, branch_norm=branch_norm))
    if not case.startswith('rpb'):
        torch.nn.init.zeros_(attention.relative_position_bias_table)
    if case == 'in_bisa':  # was stored before the projection
        attention.proj = torch.nn.Identity()
    mask = corner_mask() if 'mask' in case else None
    with torch.no_grad(), use_ops(path):
        output = attention(window(), mask)
    assert golden('bisa__n49_c96_h3').check(case, output[0].numpy()) < 2e-5


@pytest.mark.parametrize('hooked', [False, True])
@pytest.mark.parametrize('lam', [0.3, 'learned'])
@pytest.mark.parametrize(('size', 'shift'), [((8, 4), 0), ((5, 7), 2), ((3, 1), 0)])
def test_on_a_gpu_it_is_the_same(size, shift, lam, hooked, monkeypatch):
    """Weights are read directly if the modules have no hooks; otherwise the modules are called."""
    attention = WindowAttention(12, 3, 4, lam=lam, lam_init=0.9).double()
    torch.nn.init.normal_(attention.relative_position_bias_table)
    x = torch.randn(2, *size, 12, dtype=torch.float64, requires_grad=True)
    seen = []
    if hooked:
        attention.isa.v.register_forward_hook(lambda *_: seen.append(True))

    def run(path):
        windows = Windows.of(x, 4, shift)
        mask = shift_mask(x.detach(), 4, shift) if shift else None
        with use_ops(path), sdpa_kernel(SDPBackend.MATH):
            return with_gradients(
                lambda *_: attention(x, mask, windows), [x, *attention.parameters()]
            )

    expected = run('reference')
    monkeypatch.setattr(dispatch, '_PROCESSOR', 'none')
    assert_same(run('auto'), expected, 1e-11)
    assert len(seen) == (2 if hooked else 0)


@pytest.mark.parametrize(('side', 'shift', 'h'), [(4, 2, 2), (5, 2, 1), (7, 3, 6)])
def test_equals_the_oracle_in_windows_of_any_size(side, shift, h):
    attention = WindowAttention(24, h, side, lam=0.3).double()
    torch.nn.init.normal_(attention.relative_position_bias_table)
    x, mask = torch.randn(1, side**2, 24).double(), misa_naive.corner_mask(side, shift)
    w = {key: value.numpy() for key, value in attention.state_dict().items()}
    index = misa_naive.relative_position_index(side)
    assert (w['relative_position_index'] == index).all()
    bias = w['relative_position_bias_table'][index].transpose(2, 0, 1)
    (wq, wk, wv), (bq, bk, bv) = w['qkv.weight'].reshape(3, 24, 24), w['qkv.bias'].reshape(3, 24)
    tokens = x[0].numpy()
    scores = misa_naive.score_matrix(tokens, wq, bq, wk, bk, h, bias, mask)
    plain = misa_naive.msa(scores, misa_naive.heads(misa_naive.linear(tokens, wv, bv), h))
    codes = (misa_naive.gelu(misa_naive.linear(tokens, w[f'isa.{key}.weight'])) for key in 'qv')
    inverse = misa_naive.misa_naive(
        scores, *(misa_naive.heads(code, h) for code in codes), w['isa.G']
    )
    expected = misa_naive.linear(0.3 * plain + 0.7 * inverse, w['proj.weight'], w['proj.bias'])
    output = attention(x, torch.from_numpy(mask))[0]
    assert_close(output, torch.from_numpy(expected), 1e-12)


@pytest.mark.parametrize('branch_norm', [None, 'instance'])
def test_without_the_inverse_branch_it_is_self_attention_without_norms(branch_norm):
    plain = BidirectionalSelfAttention(24, num_heads=2, lam=1, branch_norm=branch_norm)
    assert plain.isa is None
    stock = torch.nn.MultiheadAttention(24, 2, batch_first=True)
    names = dict(in_proj_weight='qkv.weight', in_proj_bias='qkv.bias')
    names.update({'out_proj.weight': 'proj.weight', 'out_proj.bias': 'proj.bias'})
    stock.load_state_dict({key: plain.state_dict()[name] for key, name in names.items()})
    x = torch.randn(3, 10, 24)
    assert_close(plain(x), stock(x, x, x)[0])


def test_learned_share_keeps_the_branches_in_half_precision():
    attention = WindowAttention(24, num_heads=2, window_size=3, lam='learned')
    seen = []
    attention.proj.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].dtype))
    with torch.autocast('cpu', torch.bfloat16):
        attention(torch.randn(4, 9, 24)).sum().backward()
    assert seen == [torch.bfloat16]
    assert attention.lam_logit.grad.dtype == torch.float32


def test_instance_norm_is_over_the_tokens():
    attention = BidirectionalSelfAttention(24, num_heads=2, lam=0.999, branch_norm='instance')
    attention.proj = torch.nn.Identity()
    out = attention(torch.randn(3, 50, 24) + 5)
    assert_close(out.mean(1) + 1, torch.ones(3, 24), 1e-4)
    assert out.var(1).min() > 0.5


@pytest.mark.parametrize('projection', ['hypernetwork', 'mlp'])
@pytest.mark.parametrize('autocast', [False, True])
def test_instance_norm_of_an_even_area_in_half_precision(projection, autocast):
    """The tokens differ by a small bias only; the norm must not amplify rounding errors."""
    attention = WindowAttention(24, 2, 4, branch_norm='instance', projection=projection)
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
    both, plain = (BidirectionalSelfAttention(12, 3, lam, projection=projection) for lam in (0, 1))
    both.proj = plain.proj = torch.nn.Identity()
    plain.qkv = both.qkv
    x = torch.randn(2, 9, 12)
    for order, expected in (('misa_msa', plain(both(x))), ('msa_misa', both(plain(x)))):
        in_turn = BidirectionalSelfAttention(12, 3, bisa_order=order, projection=projection)
        in_turn.proj = torch.nn.Identity()
        in_turn.load_state_dict(both.state_dict())
        assert_close(in_turn(x), expected)


def test_mlp_in_place_of_the_hypernetwork():
    """As many parameters, and the formula of the docstring for each window and pair of tokens."""
    sizes = []
    for projection in ('hypernetwork', 'mlp'):
        attention = WindowAttention(96, 3, projection=projection, lam=0)
        sizes.append(sum(p.numel() for p in attention.parameters()))
    assert sizes[1] == pytest.approx(sizes[0], abs=32)
    attention.proj = torch.nn.Identity()
    x, isa = window(), attention.isa
    q, k, _ = split_heads(attention.qkv(x), 3, 3)
    q_hat, v_hat = (split_heads(gelu(layer(x)), 1, 3)[0] for layer in (isa.q, isa.v))
    L = (q @ k.transpose(-2, -1) * 32**-0.5).softmax(dim=-2)  # over the queries
    values = (L[..., None] * v_hat[..., None, :, :]).sum(-2)
    inverse = isa.G(torch.cat((values, q_hat), dim=-1))
    assert_close(attention(x), inverse.transpose(1, 2).flatten(2))


@pytest.mark.parametrize(
    'options', [dict(bisa_order='msa_misa', lam=0.3), dict(bisa_order='x'), dict(projection='x')]
)
def test_impossible_designs_are_refused(options):
    with pytest.raises(ValueError, match=r'lam=0.3|bisa_order|projection'):
        WindowAttention(12, 3, **options)
