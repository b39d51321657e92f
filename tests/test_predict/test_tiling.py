"""Tiles, the mean of their logits, and strips, against what torch computes as a whole."""

import pytest
import torch
from torch import nn
from torch.nn.functional import interpolate

from mmbixt.predict.tiling import ROWS, mean_of_tiles, resize_strips, tile_starts, tile_weights

SIZES = [(96, 128), (101, 203), (40, 150), (30, 30), (64, 65)]


def small_network(stride):
    """With a receptive field of 4 * stride + 1 pixels at most."""
    layers = [nn.Conv2d(3, 8, 3, stride, 1), nn.ReLU(), nn.Conv2d(8, 5, 3, 1, 1)]
    return nn.Sequential(*layers)


def tiled(network, image, tile, overlap, unit, stride):
    """Logits (K,h,w) of an image (C,H,W)."""
    tops, lefts = (tile_starts(side, tile, overlap, unit) for side in image.shape[1:])
    rows = (
        (network(image[None, :, top : top + tile, left : left + tile])[0] for left in lefts)
        for top in tops
    )
    cells = [[start // stride for start in x] for x in (tops, lefts)]
    weights = [
        tile_weights(-(-side // stride), x, tile // stride, overlap / stride)
        for side, x in zip(image.shape[1:], cells, strict=True)
    ]
    strips = [*mean_of_tiles(rows, cells, weights)]
    assert max(strip.shape[1] for strip in strips) <= ROWS
    return torch.cat(strips, 1)


@pytest.mark.parametrize(('stride', 'overlap'), [(1, 8), (4, 24)])
@pytest.mark.parametrize('size', SIZES)
@torch.no_grad()
def test_receptive_field_inside_the_overlap(size, stride, overlap):
    """Tiles give the logits of the whole image, its borders included."""
    network, image = small_network(stride), torch.randn(3, *size)
    actual = tiled(network, image, 64, overlap, 8, stride)
    torch.testing.assert_close(actual, network(image[None])[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('align_corners', [False, True])
@pytest.mark.parametrize('new', [(40, 90), (160, 203), (7, 11), (41, 30), (1, 1)])
def test_strips_are_resized_as_a_whole(new, align_corners):
    whole = torch.randn(5, 41, 30)
    strips = resize_strips(whole.split(ROWS, 1), (41, 30), new, align_corners)
    expected = interpolate(whole[None], new, mode='bilinear', align_corners=align_corners)[0]
    torch.testing.assert_close(torch.cat([*strips], 1), expected, rtol=1e-5, atol=1e-5)
