"""The Gram form of cross-covariance attention: no digits are lost, and when it is used."""

import pytest
import torch
from parity import PRECISIONS, errors
from torch import nn

from mmbixt.attention import CrossCovarianceAttention, by_definition

TOKENS = {  # where the Gram matrix could lose digits
    'a mean of 10': lambda x: x + 10 * torch.randn(x.shape[-1], dtype=x.dtype),
    'a mean of 100, small variance': lambda x: 0.01 * x + 100,
    'a channel 50 times the others': lambda x: (
        x * torch.where(torch.arange(x.shape[-1]) == 3, 50, 1)
    ),
    'all tokens equal': lambda x: x[:, :1].expand_as(x).contiguous(),
    'few dimensions': lambda x: x * (torch.arange(x.shape[-1]) < 4) + 1e-3 * x,
}


@torch.no_grad()
def attention(kind='a mean of 10', cancelled=False):
    """With weights of 0.1; ``cancelled``: its biases take the mean off queries and keys."""
    module, x = CrossCovarianceAttention(64, 4).double(), torch.randn(1, 400, 64).double()
    x = TOKENS[kind](x)
    for p in module.parameters():
        nn.init.normal_(p, std=0.1)
    nn.init.normal_(module.temperature)
    if cancelled:
        module.qkv.bias.copy_(0.1 * module.qkv.bias - module.qkv.weight @ x.mean((0, 1)))
    return module.float(), x.float().requires_grad_()


@pytest.mark.parametrize('cancelled', [False, True], ids=['', 'bias against the mean'])
@pytest.mark.parametrize('kind', TOKENS)
def test_no_digits_are_lost(kind, cancelled):
    """In float32 the error is not much larger than that of the definition."""
    module, x = attention(kind, cancelled)
    assert module._uses_gram_matrix(x)
    found = errors(lambda: (module, [x]), PRECISIONS['fp32'])
    for part, least in (('results', 2e-5), ('gradients', 1e-4)):
        assert found[part].ours <= max(20 * found[part].definition, least), found


def test_products_must_be_exact_and_tokens_many(monkeypatch):
    """Rounded to TF32, squares that are computed from Gram matrices can be negative."""
    module, x = attention()
    assert not module._uses_gram_matrix(x[:, :127])
    assert module._uses_gram_matrix(x[:, :128])
    assert not module._uses_gram_matrix(x[:0])
    assert not module._uses_gram_matrix(x.bfloat16())
    with torch.autocast('cpu', torch.bfloat16):
        assert not module._uses_gram_matrix(x)
    with by_definition():
        assert not module._uses_gram_matrix(x)
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ('high', 'medium', 'highest'):
            torch.set_float32_matmul_precision(precision)
            assert module._uses_gram_matrix(x) == (precision == 'highest')
    finally:
        torch.set_float32_matmul_precision(before)


def test_without_norm_and_temperature():
    """Channels attend by the products of queries and keys, with no factor."""
    module = CrossCovarianceAttention(12, 3, l2_norm=False, learned_temperature=False)
    x = torch.randn(2, 50, 12)
    q, k, v = module.qkv(x).unflatten(-1, (3, 3, 4)).unbind(2)  # (B,N,h,d) each
    attention = torch.einsum('bnhi,bnhj->bhij', q, k).softmax(-1)
    expected = module.proj(torch.einsum('bhij,bnhj->bnhi', attention, v).flatten(2))
    torch.testing.assert_close(module(x), expected)


def compute_weight(layer):
    weight = 2 * layer.weight.detach()
    del layer.weight
    layer.weight = weight


CHANGES = {
    'forward replaced': lambda layer: setattr(layer, 'forward', lambda x: 2 * x @ layer.weight.T),
    'weight computed': compute_weight,
    'no bias': lambda layer: layer.register_parameter('bias', None),
    'forward pre-hook': lambda layer: layer.register_forward_pre_hook(lambda _, x: (2 * x[0],)),
    'backward hook': lambda layer: layer.register_full_backward_hook(lambda *_: None),
}


@pytest.mark.parametrize('change', CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize('layer', ['qkv', 'proj'])
def test_changed_layers_are_called(layer, change):
    """The Gram form reads their weights, so it must not be used."""
    module, x = attention()
    change(getattr(module, layer))
    assert not module._uses_gram_matrix(x)
    with by_definition():
        expected = module(x)
    torch.testing.assert_close(module(x), expected)
