import pytest
import torch
from helpers import assert_close, kept_bytes
from op_checks import assert_finite, assert_same, learned, with_gradients

from mmbixt.ops import dispatch, route, routing_attention, use_ops

SHAPES = {  # B, R, L, h, d, k
    'BiFormer-T, stage 1, 128 px': (1, 64, 16, 2, 32, 1),
    'BiFormer-T, stage 3, 224 px': (1, 49, 4, 8, 32, 16),
    'all regions': (2, 4, 6, 2, 8, 4),
    'one region': (1, 1, 9, 1, 4, 1),
    'one token in a region, batch 3': (3, 9, 1, 2, 8, 4),
    'odd sizes': (2, 15, 7, 3, 5, 2),
}


@pytest.fixture(params=['cpu, all at once', 'cpu, region by region', 'portable'])
def path(request, monkeypatch):
    """The fast paths, and how many regions they take at a time."""
    if request.param == 'cpu, region by region':
        monkeypatch.setattr(dispatch, 'SCORES', 1)
    return request.param.split(',')[0]


def make_inputs(shape, dtype, masked):
    batch, regions, tokens, heads, d, topk = shape
    inputs = learned(*[(batch, regions, tokens, heads, d)] * 3, dtype=dtype)
    valid = None
    if masked:  # the last region and every second token of the others
        valid = (torch.arange(tokens) % 2 == 0).repeat(regions, 1)
        valid[1:] &= torch.arange(1, regions)[:, None] < max(regions - 1, 2)
    return inputs, route(inputs[0], inputs[1], topk, valid), valid


def run(path, inputs, routes, valid, scale=0.3):
    with use_ops(path):
        return with_gradients(lambda *x: routing_attention(*x, routes, scale, valid), inputs)


@pytest.mark.parametrize('masked', [False, True], ids=['all valid', 'some padding'])
@pytest.mark.parametrize('shape', SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_fast_path_equals_reference_forward_and_backward(path, shape, dtype, tolerance, masked):
    given = make_inputs(shape, dtype, masked)
    assert_same(run(path, *given), run('reference', *given), tolerance)


@pytest.mark.parametrize('path', ['cpu', 'portable', 'reference'])
@pytest.mark.parametrize('masked', [False, True])
def test_it_is_attention_to_the_tokens_of_the_routed_regions(path, masked):
    (queries, keys, values), routes, valid = make_inputs((2, 6, 3, 2, 4, 2), torch.float64, masked)
    with use_ops(path):
        out = routing_attention(queries, keys, values, routes, 0.5, valid)
    for image in range(2):
        for region in range(6):
            seen = [
                (r, t)
                for r in routes[image, region].tolist()
                for t in range(3)
                if valid is None or valid[r, t]
            ]
            for head in range(2):
                k = torch.stack([keys[image, r, t, head] for r, t in seen])
                v = torch.stack([values[image, r, t, head] for r, t in seen])
                expected = (0.5 * queries[image, region, :, head] @ k.T).softmax(-1) @ v
                assert_close(out[image, region, :, head], expected, 1e-12)


def test_routes_go_to_the_regions_of_the_most_similar_means():
    queries, keys = torch.zeros(1, 3, 2, 1, 3), torch.zeros(1, 3, 2, 1, 3)
    queries[0, :, :, 0] = torch.eye(3)[:, None]
    keys[0, :, 0, 0] = 2 * torch.tensor([[0.0, 3, 1], [2.0, 1, 0], [1.0, 2, 3]])
    assert route(queries, keys, 2).tolist() == [[[1, 2], [0, 2], [2, 0]]]
    valid = torch.tensor([[True, True], [False, False], [True, False]])
    # the second region has nothing to offer; of the third only the first token counts
    assert route(queries, keys, 2, valid)[0, [0, 2]].tolist() == [[2, 0], [2, 0]]
    assert route(queries, keys, 9, valid).shape == (1, 3, 3)


def test_routes_do_not_depend_on_autocast():
    x = torch.randn(1, 16, 4, 2, 8)
    with torch.autocast('cpu', torch.bfloat16):
        half = route(x, x.flip(1), 3)
    assert torch.equal(half, route(x, x.flip(1), 3))


@pytest.mark.parametrize('path', ['cpu', 'portable', 'reference'])
def test_large_scores_stay_finite(path):
    inputs, routes, valid = make_inputs((1, 6, 3, 2, 4, 2), torch.float32, True)
    with torch.no_grad():
        for x in inputs:
            x.mul_(100)
    assert_finite(run(path, inputs, routes, valid))


def test_gradcheck(path):
    inputs, routes, valid = make_inputs((1, 4, 2, 1, 2, 2), torch.float64, True)
    with use_ops(path):
        assert torch.autograd.gradcheck(
            lambda *x: routing_attention(*x, routes, 0.7, valid), inputs
        )


def test_no_copy_of_all_routed_keys_is_kept():
    """The backward pass keeps queries, keys, values, output and sums, however many regions."""
    inputs, routes, _ = make_inputs((1, 64, 4, 2, 32, 16), torch.float32, False)
    kept = kept_bytes(lambda: routing_attention(*inputs, routes, 0.2))
    assert kept < 6 * inputs[0].nbytes
