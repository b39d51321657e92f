import pytest
import torch
from helpers import assert_close
from timm.layers import DropPath
from torch import nn

from mmbixt.layers import FeedForward, Mlp, SequentialMlp, add_feed_forward
from mmbixt.layers.as_built import is_as_built
from mmbixt.layers.norm import LayerNorm


def computed(layer):
    weight = layer.weight.detach()
    del layer.weight
    layer.weight = 2 * weight


HOOKS = ('forward', 'forward_pre', 'full_backward', 'full_backward_pre')
CHANGES = {
    'another class': lambda layer: setattr(layer, '__class__', type('Other', (nn.Linear,), {})),
    'forward replaced': lambda layer: setattr(layer, 'forward', torch.relu),
    'weight computed': computed,
    # as functional_call does, and FSDP with sharded tensors
    'weight no parameter': lambda layer: layer._parameters.update(weight=torch.ones(3, 3)),
    'compiled': lambda layer: layer.compile(backend='eager'),
    **{
        f'{kind} hook': lambda layer, kind=kind: getattr(layer, f'register_{kind}_hook')(print)
        for kind in HOOKS
    },
}


@pytest.mark.parametrize('change', CHANGES.values(), ids=CHANGES)
def test_changed_layers_are_not_as_built(change):
    for layer in (nn.Linear(3, 3), nn.Linear(3, 3, bias=False)):
        assert is_as_built(layer, nn.Linear)
        change(layer)
        assert not is_as_built(layer, nn.Linear)


@pytest.mark.parametrize('kind', HOOKS)
def test_with_hooks_of_all_modules_nothing_is_as_built(kind):
    register = getattr(torch.nn.modules.module, f'register_module_{kind}_hook')
    with register(lambda *_: None):
        assert not is_as_built(nn.Linear(3, 3), nn.Linear)


@pytest.mark.parametrize('make', [Mlp, SequentialMlp, FeedForward])
def test_every_change_of_an_mlp_has_an_effect(make):
    """In float64: float32 hides the difference between the two kinds of GELU."""
    norm, mlp = LayerNorm(8).double(), make(8, 16).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    expected = x + mlp(norm(x))
    assert_close(add_feed_forward(x, norm, mlp, DropPath(0.0)), expected, 1e-12)
    for module in mlp.modules():
        if isinstance(module, nn.GELU):
            module.approximate = 'tanh'
        if isinstance(module, nn.Sequential):
            module.add_module('more', nn.Tanh())
        changed = add_feed_forward(x, norm, mlp, DropPath(0.0))
        assert_close(changed, x + mlp(norm(x)), 1e-12)
