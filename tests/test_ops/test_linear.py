import importlib

import pytest
import torch
from helpers import assert_close

from mmbixt.layers.linear import Linear
from mmbixt.ops import use_ops
from mmbixt.ops.linear import linear, linear_gradients, linear_of_each, outer_sums

convolution = importlib.import_module('mmbixt.ops.linear.convolution')

SHAPES = {  # tokens (...), C, out
    'XCiT-S12/16 at 512 px, MLP': ((1, 1024), 384, 1536),
    'Swin-T at 512 px, stage 1, queries': ((1, 128, 128), 96, 288),
    'BiFormer-T at 512 px, stage 4': ((1, 16, 16), 512, 1536),
    'latents of BiXT': ((2, 64), 192, 768),
    'one token': ((1, 1), 8, 16),
    'one channel': ((2, 9), 1, 3),
    'odd sizes, batch 3': ((3, 37), 5, 11),
    'fewer tokens than channels': ((5,), 48, 24),
}


@pytest.fixture(params=['where it pays', 'convolved always'])
def policy(request, monkeypatch):
    """On any machine, whatever its processor."""
    monkeypatch.setattr(convolution, 'IS_CONVOLUTION_FASTER', True)
    if request.param == 'convolved always':
        monkeypatch.setattr(convolution, 'MIN_VALUES', 0)
        monkeypatch.setattr(convolution, 'MIN_MACS', 0)


@pytest.fixture(params=[1, 2], ids=['one thread', 'two threads'])
def threads(request):
    """torch takes other libraries with one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def make_inputs(shape, bias=True):
    tokens, channels, out = shape
    sizes = [(*tokens, channels), (out, channels), *([(out,)] if bias else [])]
    return [torch.randn(size).requires_grad_() for size in sizes]


def run(path, inputs):
    with use_ops(path):
        out = linear(*inputs)
    weight = torch.cos(torch.arange(out.numel(), dtype=out.dtype)).view_as(out)
    return [out, *torch.autograd.grad((out * weight).sum(), inputs)]


@pytest.mark.parametrize('bias', [True, False])
@pytest.mark.parametrize('shape', SHAPES.values(), ids=SHAPES)
def test_fast_path_equals_reference(policy, threads, shape, bias):
    inputs = make_inputs(shape, bias)
    exact = run('reference', [x.detach().double().requires_grad_() for x in inputs])
    for actual, expected in zip(run('torch', inputs), exact, strict=True):
        assert_close(actual, expected.float(), 1e-5)


@pytest.mark.parametrize('shape', SHAPES.values(), ids=SHAPES)
def test_gradients_are_those_of_autograd(policy, shape):
    x, weight, bias = make_inputs(shape)
    x, weight, bias = x.detach().flatten(0, -2), weight.detach(), bias.detach()
    x, weight, bias = (v.requires_grad_() for v in (x, weight, bias))
    out = torch.nn.functional.linear(x, weight, bias)
    grad = torch.cos(torch.arange(out.numel()).float()).view_as(out)
    expected = torch.autograd.grad(out, (x, weight, bias), grad)
    with torch.no_grad():
        for a, b in zip(linear_gradients(grad, x, weight), expected, strict=True):
            assert_close(a, b, 2e-5)


@pytest.mark.parametrize('batch', [1, 3])
def test_a_matrix_for_each_image(policy, batch):
    x, weight, bias = torch.randn(batch, 70, 12), torch.randn(batch, 9, 12), torch.randn(batch, 9)
    expected = torch.einsum('bnc,boc->bno', x, weight)
    assert_close(linear_of_each(x, weight), expected)
    assert_close(linear_of_each(x, weight, bias), expected + bias[:, None])
    a, b = torch.randn(batch, 70, 5), torch.randn(batch, 70, 12)
    assert_close(outer_sums(a, b), torch.einsum('bnp,bnq->bpq', a, b))


def test_tokens_and_weights_may_be_views(policy):
    x = torch.randn(40, 2, 24)[:, 1]
    weight = torch.randn(24, 30).t()
    assert_close(linear(x, weight), x.contiguous() @ weight.contiguous().t())


def test_small_products_are_left_to_the_plain_way(monkeypatch):
    monkeypatch.setattr(convolution, 'IS_CONVOLUTION_FASTER', True)
    assert not convolution.pays(torch.randn(64, 192), torch.randn(192, 192))
    assert convolution.pays(torch.randn(1024, 192), torch.randn(768, 192))


@pytest.mark.parametrize('x', [torch.randn(4096, 96).double(), torch.randn(4096, 96).bfloat16()])
def test_other_precisions_are_left_to_the_plain_way(policy, x):
    weight = torch.randn(96, 96).to(x)
    assert not convolution.pays(x, weight)
    assert linear(x, weight).dtype == x.dtype


def test_autocast_computes_in_half_precision(policy):
    inputs = make_inputs(SHAPES['XCiT-S12/16 at 512 px, MLP'])
    with torch.autocast('cpu', torch.bfloat16):
        assert linear(*inputs).dtype == torch.bfloat16


def test_frozen_weights_get_no_gradient(policy):
    x, weight, bias = make_inputs(SHAPES['odd sizes, batch 3'])
    linear(x, weight.requires_grad_(False), bias.requires_grad_(False)).sum().backward()
    assert x.grad is not None
    assert weight.grad is None


@pytest.mark.parametrize('tokens', [(2, 128), (1, 37)])
def test_no_graph_breaks(policy, tokens):
    inputs = make_inputs((tokens, 24, 48))
    compiled = torch.compile(linear, fullgraph=True, backend='eager')
    assert_close(compiled(*inputs), linear(*inputs))


@pytest.mark.parametrize('bias', [True, False])
def test_the_operators_are_ones_that_compilers_can_trust(bias):
    x, weight, *others = (v.detach() for v in make_inputs(((9,), 4, 6), bias))
    x.requires_grad_()
    others = others[0] if bias else None
    torch.library.opcheck(convolution.linear_operator, (x, weight.requires_grad_(), others))
    given = (torch.randn(9, 6), x.detach(), weight.detach())
    for wanted in ([True, True, True], [True, False, False], [False, True, False]):
        torch.library.opcheck(convolution.linear_gradients_operator, (*given, wanted))


def test_exported_networks_have_linear_layers(policy):
    layer = Linear(24, 48)
    program = torch.export.export(layer, (torch.randn(1, 128, 24),))
    names = [str(node.target) for node in program.graph.nodes]
    assert 'aten.linear.default' in names
    traced = torch.jit.trace(layer, torch.randn(1, 128, 24))
    assert 'aten::linear' in str(traced.inlined_graph)


def test_the_layer_is_torchs():
    ours, torchs = Linear(24, 48), torch.nn.Linear(24, 48)
    ours.load_state_dict(torchs.state_dict())
    assert isinstance(ours, torch.nn.Linear)
    x = torch.randn(3, 7, 24)
    assert_close(ours(x), torchs(x))
