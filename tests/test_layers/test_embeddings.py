import pytest
import torch
from helpers import golden

from mmbixt.layers import (
    ConvPatchEmbed,
    LinearPatchEmbed,
    fourier_features,
    map_to_tokens,
    tokens_to_map,
)


@pytest.mark.parametrize('grid', [(4, 4), (4, 6), (7, 5), (1, 3), (14, 14)])
def test_fourier_features_are_the_authors(grid):
    reference = golden('posenc_raw')
    assert reference.check(f'pos_{grid[0]}x{grid[1]}', fourier_features(*grid).numpy()) < 1e-6


@pytest.mark.parametrize('embed', [LinearPatchEmbed, ConvPatchEmbed])
@pytest.mark.parametrize('stride', [16, 8, 4])
@pytest.mark.parametrize('size', [(16, 16), (17, 31), (48, 80), (33, 100)])
def test_grid_is_the_size_over_the_stride_rounded_up(embed, stride, size):
    tokens = embed(16, stride).eval()(torch.randn(1, 3, *size))
    assert tokens.shape[-2:] == (-(-size[0] // stride), -(-size[1] // stride))


def test_padding_does_not_move_the_patches():
    embed = LinearPatchEmbed(8, stride=16)
    image = torch.randn(1, 3, 40, 40)
    assert torch.equal(embed(image)[..., :2, :2], embed(image[..., :32, :32]))


def test_tokens_and_maps_share_memory():
    tokens = torch.randn(2, 15, 4)
    feature_map = tokens_to_map(tokens, (3, 5))
    assert feature_map.shape == (2, 4, 3, 5)
    assert feature_map.is_contiguous(memory_format=torch.channels_last)
    assert feature_map.data_ptr() == tokens.data_ptr()
    assert torch.equal(feature_map[0, :, 1, 2], tokens[0, 7])
    assert map_to_tokens(feature_map).data_ptr() == tokens.data_ptr()
