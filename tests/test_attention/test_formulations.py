"""What runs equals the definitions, forward and backward."""

import pytest
import torch
from cases import CASES, FIRST, bixt
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


@pytest.mark.parametrize('factor', [0, 1e-3, 100])
@pytest.mark.parametrize('name', FIRST)
def test_large_and_small_values_stay_finite(name, factor):
    call = Call(*CASES[name]())
    for x in call.parameters():
        x.data *= factor
    for outcome in (eager(call), defined(call)):
        assert all(x.isfinite().all() for x in tensors(outcome))


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
