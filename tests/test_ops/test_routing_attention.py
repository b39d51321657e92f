import torch

from mmbixt.ops import route


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
