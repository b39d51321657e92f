import torch
from helpers import assert_close
from op_checks import norm

from mmbixt.layers.norm import LayerNorm


def test_compilers_are_given_the_operator(fresh_compiler):
    graphs = []

    def keep(graph, inputs):
        graphs.append(str(graph.graph))
        return graph

    layer_norm, inputs = norm(2, 37, 12)
    for given in (inputs, [x.detach().bfloat16() for x in inputs]):
        torch.compile(layer_norm, fullgraph=True, backend=keep)(*given)
    assert ['mmbixt.layer_norm' in graph for graph in graphs] == [True, False]


def test_the_layer_is_torchs_and_so_it_is_exported():
    ours, theirs = LayerNorm(12, eps=1e-6), torch.nn.LayerNorm(12, eps=1e-6)
    assert isinstance(ours, torch.nn.LayerNorm)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x = torch.randn(2, 37, 12)
    assert_close(ours(x), theirs(x))
    program = torch.export.export(ours, (x,))
    assert 'aten.layer_norm.default' in [str(node.target) for node in program.graph.nodes]
