import pytest
import torch
from helpers import assert_close

from mmbixt.layers.norm import LayerNorm
from mmbixt.ops import use_ops
from mmbixt.ops.cpu import layer_norm as operators
from mmbixt.ops.layer_norm import layer_norm

pytestmark = pytest.mark.usefixtures('fresh_compiler')

SHAPES = {'tokens': (2, 37, 12), 'maps': (1, 5, 7, 24), 'one token': (1, 8), 'one channel': (4, 1)}


def make_inputs(shape, dtype=torch.float32):
    sizes = (shape, shape[-1:], shape[-1:])
    return [torch.randn(size, dtype=dtype).requires_grad_() for size in sizes]


def run(function, inputs):
    out = function(*inputs, 1e-6)
    weight = torch.cos(torch.arange(out.numel(), dtype=out.dtype)).view_as(out)
    return [out, *torch.autograd.grad((out * weight).sum(), inputs)]


@pytest.mark.parametrize('path', ['cpu', 'reference'])
@pytest.mark.parametrize('shape', SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_compiled_or_not_it_is_torchs(shape, dtype, tolerance, path):
    inputs = make_inputs(shape, dtype)
    norm = torch.nn.functional.layer_norm
    expected = run(lambda x, w, b, eps: norm(x, x.shape[-1:], w, b, eps), inputs)
    with use_ops(path):
        compiled = torch.compile(layer_norm, fullgraph=True, backend='eager')
        for function in (layer_norm, compiled):
            for actual, wanted in zip(run(function, inputs), expected, strict=True):
                assert_close(actual, wanted, tolerance)


def test_compilers_are_given_the_operator():
    graphs = []

    def keep(graph, inputs):
        graphs.append(str(graph.graph))
        return graph

    inputs = make_inputs(SHAPES['tokens'])
    torch.compile(layer_norm, fullgraph=True, backend=keep)(*inputs, 1e-6)
    half = [x.detach().bfloat16() for x in inputs]
    torch.compile(layer_norm, fullgraph=True, backend=keep)(*half, 1e-6)
    assert ['mmbixt.layer_norm' in graph for graph in graphs] == [True, False]


def test_tokens_may_be_views():
    x, *weights = make_inputs(SHAPES['maps'])
    strided = x.detach().transpose(1, 3).contiguous().transpose(1, 3).requires_grad_()
    compiled = torch.compile(layer_norm, fullgraph=True, backend='eager')
    expected = run(layer_norm, [x, *weights])
    for actual, wanted in zip(run(compiled, [strided, *weights]), expected, strict=True):
        assert_close(actual, wanted)


def test_exported_networks_have_layer_norms():
    program = torch.export.export(LayerNorm(12), (torch.randn(SHAPES['tokens']),))
    assert 'aten.layer_norm.default' in [str(node.target) for node in program.graph.nodes]


def test_the_operators_are_ones_that_compilers_can_trust():
    x, weight, bias = make_inputs(SHAPES['tokens'])
    torch.library.opcheck(operators.layer_norm, (x, weight, bias, 1e-6))
    x, weight, bias = (t.detach() for t in (x, weight, bias))
    out, *moments = operators.layer_norm(x, weight, bias, 1e-6)
    given = (torch.randn_like(out), x, *moments, weight, bias)
    torch.library.opcheck(operators.layer_norm_backward, given)


def test_the_layer_is_torchs():
    ours, torchs = LayerNorm(24, eps=1e-6), torch.nn.LayerNorm(24, eps=1e-6)
    assert isinstance(ours, torch.nn.LayerNorm)
    assert list(ours.state_dict()) == list(torchs.state_dict())
    x = torch.randn(3, 7, 24)
    assert_close(ours(x), torchs(x))
