import torch
from op_checks import norm


def test_compilers_are_given_the_operator(fresh_compiler):
    graphs = []

    def keep(graph, inputs):
        graphs.append(str(graph.graph))
        return graph

    layer_norm, inputs = norm(2, 37, 12)
    for given in (inputs, [x.detach().bfloat16() for x in inputs]):
        torch.compile(layer_norm, fullgraph=True, backend=keep)(*given)
    assert ['mmbixt.layer_norm' in graph for graph in graphs] == [True, False]
