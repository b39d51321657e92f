import pytest
import torch
from helpers import golden

from mmbixt.layers import fourier_features, map_to_tokens, tokens_to_map


@pytest.mark.parametrize('grid', [(4, 4), (4, 6), (7, 5), (1, 3), (14, 14)])
def test_fourier_features_are_the_authors(grid):
    reference = golden('posenc_raw')
    assert reference.check(f'pos_{grid[0]}x{grid[1]}', fourier_features(*grid).numpy()) < 1e-6


def test_tokens_and_maps_share_memory():
    tokens = torch.randn(2, 15, 4)
    feature_map = tokens_to_map(tokens, (3, 5))
    assert feature_map.shape == (2, 4, 3, 5)
    assert feature_map.is_contiguous(memory_format=torch.channels_last)
    assert feature_map.data_ptr() == tokens.data_ptr()
    assert torch.equal(feature_map[0, :, 1, 2], tokens[0, 7])
    assert map_to_tokens(feature_map).data_ptr() == tokens.data_ptr()
