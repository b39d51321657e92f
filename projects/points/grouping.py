"""From many points to fewer and back: PointMLP's affine grouping, PointNet++'s interpolation.

Points are ``B`` shapes of ``N`` points with coordinates (B,N,3) and tokens (B,N,C); a grouping has
``G`` anchors with ``k`` neighbours each.
"""

import torch
from torch import Tensor, nn


def take(x: Tensor, indices: Tensor) -> Tensor:
    """Values (B,...,C) of points (B,N,C) with indices (B,...)."""
    shape = torch.arange(len(x), device=x.device)
    return x[shape.view(-1, *[1] * (indices.ndim - 1)), indices]


@torch.no_grad()
def farthest_points(points: Tensor, count: int) -> Tensor:
    """Indices (B,count) of points (B,N,3), each the farthest from all those before it.

    The first is the first point: a random one in training, where points are in random order.
    """
    chosen = torch.zeros(len(points), count, dtype=torch.long, device=points.device)
    distance = torch.full_like(points[..., 0], torch.inf)  # squared, to the nearest chosen one
    for i in range(1, count):
        last = take(points, chosen[:, i - 1 : i])
        distance = torch.minimum(distance, (points - last).square().sum(-1))
        chosen[:, i] = distance.argmax(-1)
    return chosen


@torch.no_grad()
def nearest_points(queries: Tensor, points: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Distances and indices (B,Q,k) of the k points (B,N,3) nearest to queries (B,Q,3), ascending.

    A point that is among the queries is its own neighbour.
    """
    # exact: the faster mode loses the digits of small distances
    distance = torch.cdist(queries, points, compute_mode='donot_use_mm_for_euclid_dist')
    return distance.topk(k, largest=False)


class PointwiseLayer(nn.Sequential):
    """A linear layer, a batch norm over all points, and a ReLU: (...,C) to (...,C')."""

    def __init__(self, in_channels: int, channels: int) -> None:
        norm = nn.BatchNorm1d(channels)
        super().__init__(nn.Linear(in_channels, channels, bias=False), norm, nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, -2)).unflatten(0, x.shape[:-1])


class AffineGrouping(nn.Module):
    """PointMLP's affine grouping: one token for each anchor and its neighbours.

    With an anchor's token x, its neighbours' y, and the standard deviation s of all y - x::

        token = max over neighbours of layers([alpha (y - x) / (s + 1e-5) + beta, x])

    s is that of a shape. In PointMLP's code for classification it is that of a batch, with which a
    result depends on the other shapes.

    Args:
        channels: width C of the tokens.
        reduction: N points have N // reduction anchors, which farthest-point sampling chooses.
        neighbours: k.
    """

    def __init__(self, channels: int, reduction: int, neighbours: int) -> None:
        super().__init__()
        self.reduction, self.neighbours = reduction, neighbours
        self.alpha = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.zeros(channels))
        self.layers = nn.Sequential(
            PointwiseLayer(2 * channels, channels), PointwiseLayer(channels, channels)
        )

    def forward(self, points: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Points (B,N,3) and tokens (B,N,C) to those of the anchors, (B,G,3) and (B,G,C)."""
        chosen = farthest_points(points, max(points.shape[1] // self.reduction, 1))
        anchors, own = take(points, chosen), take(tokens, chosen)[:, :, None]
        _, neighbours = nearest_points(anchors, points, min(self.neighbours, points.shape[1]))
        difference = take(tokens, neighbours) - own  # (B,G,k,C)
        deviation = difference.flatten(1).std(dim=1)[:, None, None, None]
        difference = self.alpha * difference / (deviation + 1e-5) + self.beta
        joined = torch.cat((difference, own.expand_as(difference)), dim=-1)
        return anchors, self.layers(joined).amax(dim=2)


class Interpolation(nn.Module):
    """PointNet++'s way back, as in PointMLP's decoder: from anchors to the points before grouping.

    A point gets the mean of the tokens of its three nearest anchors, weighted by the inverse
    squared distances; it is joined with the token that the point had, in two pointwise layers.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            PointwiseLayer(2 * channels, channels), PointwiseLayer(channels, channels)
        )

    def forward(self, points: Tensor, tokens: Tensor, anchors: Tensor, coarse: Tensor) -> Tensor:
        """Points (B,N,3), their tokens (B,N,C), anchors (B,G,3) and theirs (B,G,C) to (B,N,C)."""
        distance, nearest = nearest_points(points, anchors, min(3, anchors.shape[1]))
        weight = 1 / (distance.square() + 1e-8)
        weight = weight / weight.sum(dim=-1, keepdim=True)
        interpolated = (take(coarse, nearest) * weight[..., None]).sum(dim=2)
        return self.layers(torch.cat((tokens, interpolated), dim=-1))
