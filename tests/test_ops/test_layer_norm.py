import pytest
import torch
from helpers import assert_close
from op_checks import assert_same, learned, with_gradients
from torch.nn import functional

from mmbixt.layers.norm import LayerNorm
from mmbixt.ops import use_ops
from mmbixt.ops.layer_norm import layer_norm

pytestmark = pytest.mark.usefixtures('fresh_compiler')

SHAPES = {'tokens': (2, 37, 12), 'maps': (1, 5, 7, 24), 'one token': (1, 8), 'one channel': (4, 1)}


def make_inputs(shape, dtype=torch.float32):
    return [*learned(shape, shape[-1:], shape[-1:], dtype=dtype), 1e-6]


def torchs(x, weight, bias, eps):
    return functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


@pytest.mark.parametrize('path', ['cpu', 'reference'])
@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_compiled_or_not_it_is_torchs(dtype, tolerance, path):
    for shape in SHAPES.values():
        inputs = make_inputs(shape, dtype)
        with use_ops(path):
            compiled = torch.compile(layer_norm, fullgraph=True, backend='eager')
            for function in (layer_norm, compiled):
                expected = with_gradients(torchs, inputs)
                assert_same(with_gradients(function, inputs), expected, tolerance)


def test_compilers_are_given_the_operator():
    graphs = []

    def keep(graph, inputs):
        graphs.append(str(graph.graph))
        return graph

    *inputs, eps = make_inputs(SHAPES['tokens'])
    for given in (inputs, [x.detach().bfloat16() for x in inputs]):
        torch.compile(layer_norm, fullgraph=True, backend=keep)(*given, eps)
    assert ['mmbixt.layer_norm' in graph for graph in graphs] == [True, False]


def test_tokens_may_be_views():
    x, *rest = make_inputs(SHAPES['maps'])
    strided = x.detach().transpose(1, 3).contiguous().transpose(1, 3).requires_grad_()
    compiled = torch.compile(layer_norm, fullgraph=True, backend='eager')
    expected = with_gradients(layer_norm, [x, *rest])
    assert_same(with_gradients(compiled, [strided, *rest]), expected, 1e-5)


def test_the_layer_is_torchs_and_so_it_is_exported():
    ours, theirs = LayerNorm(12, eps=1e-6), torch.nn.LayerNorm(12, eps=1e-6)
    assert isinstance(ours, torch.nn.LayerNorm)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x = torch.randn(SHAPES['tokens'])
    assert_close(ours(x), theirs(x))
    program = torch.export.export(ours, (x,))
    assert 'aten.layer_norm.default' in [str(node.target) for node in program.graph.nodes]
