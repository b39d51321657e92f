from importlib.util import module_from_spec, spec_from_file_location

import pytest
import torch
from helpers import assert_close

from mmbixt.ops import (
    bidirectional_attention,
    dispatch,
    linear,
    ops_path,
    routing_attention,
    use_ops,
)
from mmbixt.ops.dispatch import PathError, recorded_choices


def test_use_ops_ends_with_its_block():
    x, weight = torch.randn(3, 4), torch.randn(5, 4)
    with recorded_choices() as choices:
        linear(x, weight)
        with pytest.raises(PathError, match=r"'fast' is not a path.*reference"), use_ops('fast'):
            raise AssertionError('not reached')
        with pytest.raises(RuntimeError), use_ops('reference'):
            linear(x, weight[:, :2])
    linear(x, weight)
    assert ops_path() == 'auto'
    assert [(c.op, c.path, c.shape) for c in choices] == [
        ('linear', 'portable', (3, 4)),
        ('linear', 'reference', (3, 4)),
    ]


def test_environment_variable_sets_the_path(monkeypatch):
    """In a second copy of the module, which reads the variable when it is imported."""
    monkeypatch.setenv('MMBIXT_OPS', 'reference')
    spec = spec_from_file_location('second_dispatch', dispatch.__file__)
    second = module_from_spec(spec)
    spec.loader.exec_module(second)
    assert second.ops_path() == 'reference'
    assert ops_path() == 'auto'


def test_compiled_programs_follow_the_path(fresh_compiler):
    x = torch.randn(1, 2, 8, 4)
    taken = []

    def spy(graph, inputs):
        taken.append('attend_both_ways' in str(graph.graph))
        return graph

    compiled = torch.compile(lambda: bidirectional_attention(x, x, x, x, 0.5)[1], backend=spy)
    expected = compiled()
    with use_ops('reference'):
        assert_close(compiled(), expected)
    assert taken == [True, False]


REGIONS = [torch.randn(1, 4, 3, 2, 8) for _ in range(3)]
ROUTES = torch.zeros(1, 4, 2, dtype=torch.long)


@pytest.mark.parametrize(
    ('inputs', 'why'),
    [
        ([x.to('meta') for x in REGIONS], 'the tensors are on meta'),
        ([x.bfloat16() for x in REGIONS], 'the tensors are torch.bfloat16'),
        ([x[:0] for x in REGIONS], 'there is nothing to compute'),
    ],
)
def test_a_path_that_cannot_run_raises_an_error_and_auto_avoids_it(inputs, why):
    routes = ROUTES[: len(inputs[0])].to(inputs[0].device)
    with use_ops('cpu'), pytest.raises(PathError, match=rf'=cpu: routing_attention.*{why}'):
        routing_attention(*inputs, routes, 0.3)
    with recorded_choices() as choices:
        routing_attention(*inputs, routes, 0.3)
    assert choices[0].path == 'portable'
    assert why in choices[0].why


def test_autocast_exporters_and_transforms_use_plain_operations():
    def paths(function):
        with recorded_choices() as choices:
            function()
        return {choice.path for choice in choices}

    def attend(*x):
        return routing_attention(*x, ROUTES, 0.3)

    assert paths(lambda: attend(*REGIONS)) == {'cpu'}
    with torch.autocast('cpu', torch.bfloat16):
        assert paths(lambda: attend(*REGIONS)) == {'portable'}
    # the check of a trace runs eagerly
    assert paths(lambda: torch.jit.trace(attend, REGIONS)) == {'portable', 'cpu'}
    assert paths(lambda: torch.func.vmap(attend)(*(x[None] for x in REGIONS))) == {'portable'}
