"""Every fast path against the reference, forward and backward."""

import pytest
import torch
from helpers import kept_bytes
from op_checks import (
    CASES,
    FIRST,
    assert_same,
    bixt,
    inverse,
    learned,
    mlp,
    on,
    routing,
    windows,
    xca,
)
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel

from mmbixt.ops import dispatch
from mmbixt.ops.inverse_attention import bilinear

ALL = {
    f'{make.__name__}: {label}': (make, *shape)
    for make, shapes in CASES.items()
    for label, shape in shapes.items()
}
PATHS = ('auto', 'cpu', 'portable')
PRECISIONS = pytest.mark.parametrize(
    ('dtype', 'tolerance'), [(torch.float64, 1e-11), (torch.float32, 2e-5)]
)
SMALLER = {inverse: [2**13], mlp: [2**11], routing: [2**11, 1], windows: [2**11]}


@pytest.mark.parametrize('case', ALL.values(), ids=ALL)
@PRECISIONS
def test_fast_paths_equal_the_reference(case, dtype, tolerance, monkeypatch):
    make, *shape = case
    given = make(*shape, dtype=dtype)
    expected = on('reference', *given)
    # for several sizes of the blocks in which it is computed
    for scores in (dispatch.SCORES, *SMALLER.get(make, ())):
        monkeypatch.setattr(dispatch, 'SCORES', scores)
        for path in PATHS:
            assert_same(on(path, *given), expected, tolerance)


@pytest.mark.parametrize('case', ALL.values(), ids=ALL)
@pytest.mark.parametrize('buffer', [1, 2**27])
def test_paths_for_gpus_equal_the_reference(case, buffer, monkeypatch):
    make, *shape = case
    given = make(*shape, dtype=torch.float64)
    expected = on('reference', *given)
    monkeypatch.setattr(dispatch, '_PROCESSOR', 'none')
    monkeypatch.setattr(bilinear, '_GPU_BUFFER', buffer)  # one row at a time, or all
    with sdpa_kernel(SDPBackend.MATH):
        assert_same(on('auto', *given), expected, 1e-11)


@pytest.mark.parametrize('spread', [30, 1e4])
@pytest.mark.parametrize('side', [0, 1])
@PRECISIONS
def test_bixts_similarities_may_be_far_apart(spread, side, dtype, tolerance):
    """Those of one latent, or token, of the second of two images are far below all others."""
    attend, inputs = bixt(2, 2, 3, 4, 5, 8, dtype=dtype)
    with torch.no_grad():
        inputs[1 - side][1] = 1
        inputs[side][1, :, 0] = -spread
    assert_same(on('cpu', attend, inputs), on('reference', attend, inputs), tolerance)


@pytest.mark.parametrize('factor', [1, 4, 8])
@PRECISIONS
def test_hidden_tokens_may_have_the_largest_scores(factor, dtype, tolerance):
    """By more than the 100 that the mask takes off, so that they get almost all weight."""
    given = windows((1, 10, 17), 2, 8, 7, 3, True, factor=factor, dtype=dtype)
    assert_same(on('cpu', *given), on('reference', *given), tolerance)


def test_hidden_tokens_get_no_subnormal_weights():
    """Processors take many times as long to compute with them."""
    function, inputs = windows((2, 14, 14), 2, 8, 7, 3, True, factor=2)
    kept = []
    with saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        function(*inputs)
    attention = [x for x in kept if x.shape[1:] == (49, 49)]
    assert len(attention) == 2
    for x in attention:
        assert not ((x > 0) & (x < torch.finfo(x.dtype).tiny)).any()
        assert (x == 0).any()


@pytest.mark.parametrize('factor', [0, 1e-3, 100])
@pytest.mark.parametrize('name', FIRST)
def test_large_and_small_values_stay_finite(name, factor):
    make, *shape = FIRST[name]
    given = make(*shape, factor=factor)
    for path in (*PATHS, 'reference'):
        results, gradients = on(path, *given)
        assert all(x.isfinite().all() for x in [*results, *gradients] if x is not None)


@pytest.mark.parametrize('name', FIRST)
def test_inputs_may_be_frozen_or_views(name):
    make, *shape = FIRST[name]
    function, inputs = make(*shape)
    trained = [x for x in inputs if x is not None and x.requires_grad]
    results, gradients = on('reference', function, inputs)
    for path in PATHS:
        for first in (0, 1):  # each second one is frozen
            left = [x.requires_grad_(i % 2 == first) for i, x in enumerate(trained)]
            expected = [g for x, g in zip(left, gradients, strict=True) if x.requires_grad]
            assert_same(on(path, function, inputs), (results, expected), 2e-5)
        for x in trained:
            x.requires_grad_()
        views = [as_view(x) for x in inputs]
        assert_same(on(path, function, views), (results, gradients), 2e-5)


def as_view(x):
    view = x.detach().transpose(0, -1).contiguous().transpose(0, -1)
    return view.requires_grad_(x.requires_grad)


EMPTY = {
    'no tokens': lambda: mlp((2, 0), 8, 12),
    'no images in windows': lambda: windows((0, 5, 5), 2, 4, 4, 2, True),
    'no images, between channels': lambda: xca(0, 9, 8, 2),
}


@pytest.mark.parametrize('make', EMPTY.values(), ids=EMPTY)
def test_empty_inputs(make):
    results, gradients = on('auto', *make())
    assert all(x.numel() == 0 for x in results)
    assert all((x == 0).all() for x in gradients if x is not None)


KEPT = {  # values that may be kept for the backward pass, beside the inputs and the results
    'hidden values, once': (mlp, ((1, 16384), 32, 128, True), 16384 * 128),
    'one matrix of both directions': (bixt, (2, 2, 4, 8, 64, 4), 2 * 4 * (8 * 64 + 8 + 64)),
    'no copies of routed regions': (routing, (1, 64, 4, 2, 32, 16), 64 * 4 * 64 * 2),
    'the attention of windows': (windows, ((1, 56, 56), 3, 32, 7, 3), 64 * 49**2 * 6 + 56**2 * 4),
}


@pytest.mark.parametrize(('make', 'shape', 'values'), KEPT.values(), ids=KEPT)
def test_memory_kept_for_the_backward_pass(make, shape, values):
    function, inputs = make(*shape)
    size = 4 * values + sum(x.nbytes for x in [*inputs, *function(*inputs)])
    assert kept_bytes(lambda: function(*inputs)) <= size
    assert kept_bytes(lambda: function(*(x.detach() for x in inputs))) == 0


def test_no_outer_products_are_kept():
    inputs = learned((9, 8), (9, 8), (8, 8, 8))
    assert kept_bytes(lambda: bilinear.bilinear(*inputs)) == sum(x.nbytes for x in inputs)
