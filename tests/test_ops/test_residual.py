import copy

import pytest
import torch
from helpers import kept_bytes
from op_checks import assert_same, learned, with_gradients
from timm.layers import DropPath

from mmbixt.layers import add_update
from mmbixt.ops.residual import add_scaled


@pytest.mark.parametrize('factor', [(4,), (2, 1, 1), (2, 1, 4)])
def test_derivatives(factor):
    inputs = learned((2, 3, 4), (2, 3, 4), factor, dtype=torch.float64)
    assert torch.autograd.gradcheck(add_scaled, inputs)
    assert torch.autograd.gradgradcheck(add_scaled, inputs)
    doubled = torch.func.vmap(add_scaled)(*(x[None] for x in inputs))[0]
    assert torch.equal(doubled, add_scaled(*inputs))


def test_keeps_the_update_only_for_a_learned_factor():
    x, update, factor = learned((2, 3, 4), (2, 3, 4), (2, 1, 1))
    assert kept_bytes(lambda: add_scaled(x, update, factor)) == update.nbytes + factor.nbytes
    assert kept_bytes(lambda: add_scaled(x, update, factor.detach())) == factor.nbytes


@pytest.mark.parametrize('training', [False, True])
@pytest.mark.parametrize('scaled', [False, True])
def test_drops_the_same_images_as_the_module(training, scaled):
    inputs = learned((8, 3, 4), (8, 3, 4), *[(4,)] * scaled, dtype=torch.float64)
    drop_path = DropPath(0.5).train(training)
    hooked = copy.deepcopy(drop_path)
    hooked.register_forward_hook(lambda *_: None)  # so that add_update calls the module

    def run(module):
        torch.manual_seed(0)
        return with_gradients(lambda x, update, *s: add_update(x, update, module, *s), inputs)

    assert_same(run(drop_path), run(hooked), 1e-14)
