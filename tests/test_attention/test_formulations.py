"""What runs equals the definitions, forward and backward."""

import pytest
import torch
from cases import CASES, FIRST, MODULES, bixt
from parity import Call, assert_same, eager, tensors

from mmbixt.attention import by_definition

PRECISIONS = pytest.mark.parametrize(
    ('dtype', 'tolerance'), [(torch.float64, 1e-11), (torch.float32, 2e-5)]
)


def defined(call):
    with by_definition():
        return eager(call)


@PRECISIONS
@pytest.mark.parametrize('name', CASES)
def test_equals_the_definition(name, dtype, tolerance):
    call = Call(*CASES[name]()).to(dtype)
    assert_same(eager(call), defined(call), tolerance)


@pytest.mark.parametrize('name', FIRST)
def test_inputs_may_be_frozen_or_views(name):
    call = Call(*CASES[name]())
    expected = defined(call)
    for first in (0, 1):  # each second one is frozen
        for i, x in enumerate(call.parameters()):
            x.requires_grad_(i % 2 == first)
        assert_same(eager(call), (expected[0], expected[1][first::2]), 2e-5)
    for x in call.parameters():
        x.requires_grad_()
        x.data = x.data.transpose(0, -1).contiguous().transpose(0, -1)
    assert_same(eager(call), expected, 2e-5)


@pytest.mark.parametrize('factor', [0, 1e-3, 100])
@pytest.mark.parametrize('name', FIRST)
def test_large_and_small_values_stay_finite(name, factor):
    call = Call(*CASES[name]())
    for x in call.parameters():
        x.data *= factor
    for outcome in (eager(call), defined(call)):
        assert all(x.isfinite().all() for x in tensors(outcome))


@pytest.mark.parametrize('name', MODULES)
def test_a_batch_may_be_empty(name):
    module, inputs = MODULES[name]()
    inputs = [x.detach()[:0].requires_grad_() if torch.is_tensor(x) else x for x in inputs]
    results, gradients = eager(Call(module.eval(), inputs))
    assert all(x.numel() == 0 for x in results)
    assert all((x == 0).all() for x in tensors(gradients))


@pytest.mark.parametrize('side', [0, 1])
@pytest.mark.parametrize(
    ('dtype', 'spread', 'tolerance'), [(torch.float64, 1e4, 1e-11), (torch.float32, 30, 2e-5)]
)
def test_bixts_similarities_may_be_far_apart(side, dtype, spread, tolerance):
    """Those of one latent, or token, of the second image are far below all others."""
    call = Call(*bixt(2, 2, 3, 4, 5, 8)).to(dtype)
    call.inputs[1 - side].data[1] = 1
    call.inputs[side].data[1, :, 0] = -spread
    assert_same(eager(call), defined(call), tolerance)
