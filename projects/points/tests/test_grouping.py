"""Sampling, neighbours, grouping and interpolation, against their definitions in loops."""

import pytest
import torch
from helpers import assert_close
from torch import nn

from projects.points.grouping import (
    AffineGrouping,
    Interpolation,
    farthest_points,
    nearest_points,
    take,
)


def squared(a, b):
    return float((a - b).square().sum())


@pytest.mark.parametrize('repeated', [False, True])
def test_farthest_points(repeated):
    points = torch.rand(2, 40, 3)
    if repeated:  # as dropped points are
        points[:, 5:30] = points[:, :1]
    found = farthest_points(points, 12)
    for shape, indices in zip(points, found.tolist(), strict=True):
        expected = [0]
        while len(expected) < 12:
            gaps = [min(squared(p, shape[j]) for j in expected) for p in shape]
            expected.append(max(range(len(gaps)), key=gaps.__getitem__))
        assert indices == expected


def test_nearest_points():
    queries, points = torch.rand(2, 7, 3), torch.rand(2, 40, 3)
    queries[:, 0] = points[:, 9]
    distances, indices = nearest_points(queries, points, 5)
    for b in range(2):
        for q in range(7):
            gaps = [squared(queries[b, q], p) for p in points[b]]
            expected = sorted(range(40), key=gaps.__getitem__)[:5]
            assert indices[b, q].tolist() == expected
            torch.testing.assert_close(distances[b, q].square(), torch.tensor(sorted(gaps)[:5]))
    assert (indices[:, 0, 0] == 9).all()


def test_small_distances_far_from_the_origin_are_exact():
    points = 100 + torch.arange(20.0)[None, :, None] * torch.tensor([1e-3, 0, 0])
    _, indices = nearest_points(points, points, 1)
    assert indices.flatten().tolist() == list(range(20))


def random_norms(module):
    """In eval mode, with statistics and weights that matter."""
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm1d):
            for x in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
                x.data.uniform_(0.5, 1.5)
    return module.eval()


def group_by_definition(grouping, points, tokens):
    found = []
    for shape, x in zip(points, tokens, strict=True):
        anchors = farthest_points(shape[None], len(shape) // grouping.reduction)[0]
        groups = [
            sorted(range(len(shape)), key=lambda j: squared(shape[a], shape[j])) for a in anchors
        ]
        groups = [group[: grouping.neighbours] for group in groups]
        differences = [x[group] - x[a] for a, group in zip(anchors, groups, strict=True)]
        deviation = torch.stack(differences).std() + 1e-5
        for a, difference in zip(anchors, differences, strict=True):
            normed = grouping.alpha * difference / deviation + grouping.beta
            joined = [grouping.layers(torch.cat((y, x[a]))[None])[0] for y in normed]
            found.append(torch.stack(joined).max(0).values)
    return torch.stack(found).view(len(points), -1, tokens.shape[2])


def test_affine_grouping():
    grouping = random_norms(AffineGrouping(6, reduction=4, neighbours=5))
    nn.init.uniform_(grouping.alpha, 0.5, 1.5)
    nn.init.uniform_(grouping.beta, -0.5, 0.5)
    points, tokens = torch.rand(2, 24, 3), torch.randn(2, 24, 6, requires_grad=True)
    anchors, grouped = grouping(points, tokens)
    assert torch.equal(anchors, take(points, farthest_points(points, 6)))
    expected = group_by_definition(grouping, points, tokens)
    assert_close(grouped, expected)
    parameters, seed = [tokens, *grouping.parameters()], torch.randn_like(grouped)
    gradients = [torch.autograd.grad(y, parameters, seed) for y in (grouped, expected)]
    assert_close(*gradients)


def test_few_points():
    points, tokens = torch.rand(1, 5, 3), torch.randn(1, 5, 6)
    anchors, grouped = AffineGrouping(6, reduction=8, neighbours=24).eval()(points, tokens)
    assert grouped.shape == (1, 1, 6)
    assert Interpolation(6).eval()(points, tokens, anchors, grouped).shape == (1, 5, 6)


def test_interpolation():
    interpolation = random_norms(Interpolation(4))
    points, tokens = torch.rand(2, 9, 3), torch.randn(2, 9, 4)
    anchors, coarse = points[:, :5], torch.randn(2, 5, 4)
    found = interpolation(points, tokens, anchors, coarse)
    for b in range(2):
        for i in range(9):
            gaps = [squared(points[b, i], anchor) for anchor in anchors[b]]
            nearest = sorted(range(5), key=gaps.__getitem__)[:3]
            weights = torch.tensor([1 / (gaps[j] + 1e-8) for j in nearest])
            mean = (weights / weights.sum()) @ coarse[b, nearest]
            expected = interpolation.layers(torch.cat((tokens[b, i], mean))[None])[0]
            assert_close(found[b, i], expected, 1e-4)
