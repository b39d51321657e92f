import pytest
import torch
from helpers import kept_bytes
from op_checks import assert_finite, assert_same, learned, with_gradients

from mmbixt.backbones.bisa_swin import shift_mask
from mmbixt.ops import dispatch, use_ops
from mmbixt.ops.window_attention import (
    Scores,
    Windows,
    bidirectional_window_attention,
    window_attention,
)

SHAPES = {  # maps (B,H,W), h, d, size and shift of the windows
    'Swin-T at 224 px, stage 1, shifted': ((1, 56, 56), 3, 32, 7, 3),
    'Swin-T at 256 px, stage 4': ((1, 8, 8), 24, 32, 7, 0),
    'sides that no window divides, batch 3': ((3, 10, 17), 2, 8, 7, 3),
    'smaller than a window': ((2, 2, 5), 2, 4, 7, 3),
    'windows of one token': ((1, 3, 4), 1, 4, 1, 0),
    'one token': ((1, 1, 1), 3, 2, 4, 2),
    'odd width of heads': ((1, 5, 7), 3, 5, 4, 2),
}
KINDS = ('alone', 'both')


@pytest.fixture(params=['all at once', 'a few windows at a time'])
def policy(request, monkeypatch):
    if request.param == 'a few windows at a time':
        monkeypatch.setattr(dispatch, 'SCORES', 2**10)


def make_inputs(shape, dtype, factor=1.0):
    """Maps, what is learned of the windows, and the windows themselves."""
    maps, h, d, size, shift = shape
    x, positions = torch.zeros(*maps, h * d, dtype=dtype), (2 * size - 1) ** 2
    sizes = [(*maps, 3 * h * d), (3 * h * d,), (*maps, h * d), (*maps, h * d), (d, d, d)]
    tensors = learned(*sizes, (positions, h), dtype=dtype, factor=factor)
    index = torch.randint(positions, (size**2, size**2))
    mask = shift_mask(x, size, shift) if shift else None
    return tensors, Windows.of(x, size, shift), (index, mask)


def attend(kind, tensors, windows, others, scale):
    qkv, fill, *inverse, table = tensors
    scores = Scores(scale, table, *others)
    if kind == 'alone':
        return window_attention(qkv, fill, windows, scores)
    return bidirectional_window_attention(qkv, fill, *inverse, windows, scores)


def run(kind, inputs, path='cpu'):
    tensors, *rest = inputs
    scale = tensors[0].shape[-1] ** -0.5
    with use_ops(path):
        return with_gradients(lambda *x: attend(kind, x, *rest, scale), tensors)


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('shape', SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_fast_path_equals_reference(policy, shape, dtype, tolerance, kind):
    inputs = make_inputs(shape, dtype)
    assert_same(run(kind, inputs), run(kind, inputs, 'reference'), tolerance)


@pytest.mark.parametrize('kind', KINDS)
def test_large_scores_stay_finite(policy, kind):
    inputs = make_inputs(SHAPES['sides that no window divides, batch 3'], torch.float32, 30.0)
    assert_finite(run(kind, inputs))


@pytest.mark.parametrize('kind', KINDS)
def test_no_images_at_all(kind):
    inputs = make_inputs(((0, 5, 5), 2, 4, 4, 2), torch.float32)
    outputs, gradients = run(kind, inputs, 'auto')
    assert outputs[0].shape == (0, 5, 5, 8)
    assert all((x == 0).all() for x in gradients if x is not None)


@pytest.mark.parametrize('kind', KINDS)
def test_gradcheck(policy, kind):
    tensors, *rest = make_inputs(((2, 3, 2), 2, 2, 2, 1), torch.float64)
    assert torch.autograd.gradcheck(lambda *x: attend(kind, x, *rest, 0.5), tensors, fast_mode=True)


@pytest.mark.parametrize('frozen', ['tokens', 'weights'])
def test_what_is_frozen_gets_no_gradient(frozen):
    inputs = make_inputs(SHAPES['odd width of heads'], torch.float32)
    outputs, expected = run('both', inputs)
    for i, x in enumerate(inputs[0]):
        x.requires_grad_((i in (1, 4, 5)) == (frozen == 'tokens'))
    left = [g for x, g in zip(inputs[0], expected, strict=True) if x.requires_grad]
    assert_same(run('both', inputs), (outputs, left), 1e-6)


def test_tokens_may_be_views():
    inputs = make_inputs(SHAPES['odd width of heads'], torch.float32)
    expected = run('both', inputs)
    strided = [x.detach().transpose(0, -1).contiguous().transpose(0, -1) for x in inputs[0]]
    actual = run('both', ([x.requires_grad_() for x in strided], *inputs[1:]))
    assert_same(actual, expected, 1e-5)


def test_the_backward_pass_keeps_the_tokens_and_the_attention():
    (qkv, fill, *_, table), windows, (index, mask) = make_inputs(
        SHAPES['Swin-T at 224 px, stage 1, shifted'], torch.float32
    )
    scores = Scores(0.2, table, index, mask)
    kept = kept_bytes(lambda: window_attention(qkv, fill, windows, scores))
    attention = 4 * 64 * 3 * 49 * 49
    layout = sum(x.nbytes for x in (windows.token, windows.place, index, mask))
    assert kept < qkv.nbytes + attention + 2 * layout


def test_nothing_is_kept_for_what_is_frozen():
    (qkv, fill, *_, table), windows, (index, mask) = make_inputs(
        SHAPES['odd width of heads'], torch.float32
    )
    qkv, fill, table = (x.detach() for x in (qkv, fill, table))
    scores = Scores(0.2, table, index, mask)
    assert kept_bytes(lambda: window_attention(qkv, fill, windows, scores)) == 0
