"""Requirements of autograd, compilers and counters on all our operators."""

import pytest
import torch
from op_checks import FIRST, assert_same, learned, with_gradients
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.library import opcheck

from mmbixt import ops
from mmbixt.ops import FeedForwardWeights
from mmbixt.ops.cpu.bidirectional_attention import attend_both_ways
from mmbixt.ops.cpu.feed_forward import feed_forward
from mmbixt.ops.cpu.layer_norm import layer_norm
from mmbixt.ops.cpu.linear import linear, outer
from mmbixt.ops.cpu.routing_attention import routed_attention
from mmbixt.ops.cpu.window_attention import attend_in_windows
from mmbixt.ops.cpu.window_slots import Slots
from mmbixt.ops.inverse_attention.bilinear import bilinear_of_rows
from mmbixt.ops.window_attention import Scores, Windows

WINDOWS = Windows.of(torch.empty(1, 5, 7, 15), 4, 2)
MASK = torch.randn(4, 1, 16, 16)


def flat(*arguments):
    return [x for part in arguments for x in (part if isinstance(part, tuple) else [part])]


def feed_forward_weights(scale=None):
    sizes = [(4,), (4,), (6, 4), (6,), (4, 6), (4,)]
    norm_weight, norm_bias, *layers = learned(*sizes)
    return FeedForwardWeights(norm_weight, norm_bias, 1e-6, *layers, scale)


def windows(with_v_hat):
    qkv, fill, table = learned((35, 45), (45,), (49, 3))
    scores = Scores(0.2, table, torch.arange(256).view(16, 16) % 49, MASK)
    v_hat = learned((35, 15))[0] if with_v_hat else None
    return attend_in_windows, flat(qkv, v_hat, fill, Slots.of(qkv, WINDOWS, 3), scores, True)


def routed(hidden):
    rows = torch.arange(18).view(6, 3) * 5 % 6
    hidden = torch.arange(12).expand(6, 12) % 5 == 0 if hidden else None
    return routed_attention, [*learned(*[(2, 6, 4, 8)] * 3), rows, hidden, 0.3]


# with flat arguments, as compilers call them
OPERATORS = {
    'feed_forward': lambda: (
        feed_forward,
        flat(*learned((9, 4)), feed_forward_weights(), True, True, 4, False),
    ),
    'linear': lambda: (linear, learned((9, 4), (6, 4), (6,))),
    'linear without a bias': lambda: (linear, [*learned((9, 4), (6, 4)), None]),
    'outer': lambda: (outer, learned((9, 4), (9, 6))),
    'layer_norm': lambda: (layer_norm, [*learned((2, 9, 4), (4,), (4,)), 1e-6]),
    'bilinear_of_rows': lambda: (bilinear_of_rows, learned((9, 3), (9, 4), (3, 4, 5))),
    'attend_both_ways': lambda: (
        attend_both_ways,
        [*learned(*[(2, 3, 4, 8), (2, 5, 4, 8)] * 2), 0.3],
    ),
    'routed_attention': lambda: routed(False),
    'routed_attention, some hidden': lambda: routed(True),
    'attend_in_windows': lambda: windows(False),
    'attend_in_windows, both': lambda: windows(True),
}
parametrized = pytest.mark.parametrize('make', OPERATORS.values(), ids=OPERATORS)


@parametrized
def test_opcheck(make):
    operator, given = make()
    opcheck(operator.op, given)
    given = [x.detach() if isinstance(x, Tensor) else x for x in given]
    results, kept = operator.op(*given)
    kept = operator.kept(results, kept)
    given = [torch.randn_like(x) for x in results], kept, *given
    opcheck(operator.backward_op, given)
    strides = [x.stride() for x in operator.backward_op(*given)]  # opcheck compares only sizes
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert [x.stride() for x in operator.backward_op(*given)] == strides


@parametrized
def test_eager_and_registered_operators_are_equal(make):
    """The eager function gives the same bits as the operator that compilers and modes call."""
    operator, given = make()
    as_called = with_gradients(lambda *x: operator(*operator._pack(x)), given)
    assert_same(as_called, with_gradients(lambda *x: operator.op(*x)[0], given), 0)


@pytest.mark.parametrize('name', FIRST)
def test_compiled_without_graph_breaks_and_exported_without_our_operators(fresh_compiler, name):
    make, *shape = FIRST[name]
    function, inputs = make(*shape)
    compiled = torch.compile(function, fullgraph=True, backend='aot_eager')
    with ops.use_ops('cpu'):
        assert_same(with_gradients(compiled, inputs), with_gradients(function, inputs), 1e-5)

    class Network(torch.nn.Module):
        def forward(self, *x):
            return function(*x)

    program = torch.export.export(Network(), tuple(inputs))
    assert 'mmbixt' not in str(program.graph)
    assert_same(with_gradients(program.module(), inputs), with_gradients(function, inputs), 1e-5)
