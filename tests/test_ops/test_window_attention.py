import pytest
import torch
from helpers import assert_close, kept_bytes

from mmbixt.backbones.bisa_swin import shift_mask
from mmbixt.ops import dispatch, use_ops
from mmbixt.ops.cpu import window_attention as operators
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
    tensors = [factor * torch.randn(s, dtype=dtype) for s in (*sizes, (positions, h))]
    index = torch.randint(positions, (size**2, size**2))
    mask = shift_mask(x, size, shift) if shift else None
    return [t.requires_grad_() for t in tensors], Windows.of(x, size, shift), (index, mask)


def run(kind, inputs, path='cpu'):
    """Outputs, and gradients of all that has some."""
    (qkv, fill, q_hat, v_hat, G, table), windows, (index, mask) = inputs
    scores = Scores(qkv.shape[-1] ** -0.5, table, index, mask)
    with use_ops(path):
        if kind == 'alone':
            outputs = [window_attention(qkv, fill, windows, scores)]
        else:
            isa = (q_hat, v_hat, G)
            outputs = bidirectional_window_attention(qkv, fill, *isa, windows, scores)
    given = [x for x in inputs[0] if x.requires_grad]
    weights = [torch.cos(torch.arange(x.numel()).double()).to(x).view_as(x) for x in outputs]
    loss = sum((x * w).sum() for x, w in zip(outputs, weights, strict=True))
    unused = kind == 'alone'
    return [*outputs, *torch.autograd.grad(loss, given, allow_unused=unused)]


def assert_alike(kind, actual, expected, tolerance):
    outputs = KINDS.index(kind) + 1
    largest = max(float(x.abs().max()) for x in expected[outputs:] if x is not None)
    for i, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        if theirs is None:
            assert ours is None
        elif i < outputs:
            assert_close(ours, theirs, tolerance)
        else:
            assert (ours - theirs).abs().max() <= tolerance * largest


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('shape', SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_fast_path_equals_reference(policy, shape, dtype, tolerance, kind):
    inputs = make_inputs(shape, dtype)
    assert_alike(kind, run(kind, inputs), run(kind, inputs, 'reference'), tolerance)


@pytest.mark.parametrize('kind', KINDS)
def test_large_scores_stay_finite(policy, kind):
    inputs = make_inputs(SHAPES['sides that no window divides, batch 3'], torch.float32, 30.0)
    assert all(x.isfinite().all() for x in run(kind, inputs) if x is not None)


@pytest.mark.parametrize('kind', KINDS)
def test_no_images_at_all(kind):
    inputs = make_inputs(((0, 5, 5), 2, 4, 4, 2), torch.float32)
    output, *rest = run(kind, inputs, 'auto')
    assert output.shape == (0, 5, 5, 8)
    assert all((x == 0).all() for x in rest if x is not None)


@pytest.mark.parametrize('kind', KINDS)
def test_gradcheck(policy, kind):
    tensors, windows, others = make_inputs(((2, 3, 2), 2, 2, 2, 1), torch.float64)

    def function(*tensors):
        qkv, fill, q_hat, v_hat, G, table = tensors
        scores = Scores(0.5, table, *others)
        if kind == 'alone':
            return window_attention(qkv, fill, windows, scores)
        return bidirectional_window_attention(qkv, fill, q_hat, v_hat, G, windows, scores)

    assert torch.autograd.gradcheck(function, tensors)


@pytest.mark.parametrize('frozen', ['tokens', 'weights'])
def test_what_is_frozen_gets_no_gradient(frozen):
    inputs = make_inputs(SHAPES['odd width of heads'], torch.float32)
    of_weights = (1, 4, 5)
    expected = dict(zip(range(6), run('both', inputs)[2:], strict=True))
    for i, x in enumerate(inputs[0]):
        x.requires_grad_((i in of_weights) == (frozen == 'tokens'))
    left = [i for i, x in enumerate(inputs[0]) if x.requires_grad]
    for i, actual in zip(left, run('both', inputs)[2:], strict=True):
        assert_close(actual, expected[i])


def test_tokens_may_be_views():
    inputs = make_inputs(SHAPES['odd width of heads'], torch.float32)
    expected = run('both', inputs)
    strided = [x.detach().transpose(0, -1).contiguous().transpose(0, -1) for x in inputs[0]]
    actual = run('both', ([x.requires_grad_() for x in strided], *inputs[1:]))
    assert_alike('both', actual, expected, 1e-5)


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


@pytest.mark.parametrize('kind', KINDS)
def test_half_precision_takes_the_plain_way(kind):
    inputs = make_inputs(SHAPES['odd width of heads'], torch.float32)
    expected = run(kind, inputs)
    with torch.autocast('cpu', torch.bfloat16):
        half = run(kind, inputs, 'auto')
    assert_alike(kind, half, expected, 5e-2)


@pytest.mark.parametrize('kind', KINDS)
def test_no_graph_breaks(kind):
    inputs = make_inputs(SHAPES['odd width of heads'], torch.float32)
    tensors, windows, others = inputs

    def function(qkv, fill, q_hat, v_hat, G, table):
        scores = Scores(0.2, table, *others)
        if kind == 'alone':
            return window_attention(qkv, fill, windows, scores)
        return bidirectional_window_attention(qkv, fill, q_hat, v_hat, G, windows, scores)

    compiled = torch.compile(function, fullgraph=True, backend='eager')
    for actual, expected in zip(compiled(*tensors), function(*tensors), strict=True):
        assert_close(actual, expected)


@pytest.mark.parametrize('kind', KINDS)
def test_the_operators_are_ones_that_compilers_can_trust(kind):
    (qkv, fill, _, v_hat, _, table), windows, (index, mask) = make_inputs(
        SHAPES['odd width of heads'], torch.float32
    )
    tokens = [x.detach().flatten(0, 2) for x in (qkv, v_hat)]
    tokens[1] = None if kind == 'alone' else tokens[1]
    given = (*tokens, fill.detach(), windows.token.view(-1, 16), windows.place, table.detach())
    for keep in (False, True):
        torch.library.opcheck(operators.attend_in_windows, (*given, index, mask, 0.2, keep))
    found = operators.attend_in_windows(*given, index, mask, 0.2, True)
    count = KINDS.index(kind) + 1
    grads = [torch.randn_like(x) for x in found[:count]]
    torch.library.opcheck(
        operators.attend_in_windows_backward, (grads, found[count:], *given, index, 0.2)
    )
