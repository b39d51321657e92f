import pytest
from helpers import golden

from mmbixt.layers import fourier_features


@pytest.mark.parametrize('grid', [(4, 4), (4, 6), (7, 5), (1, 3), (14, 14)])
def test_fourier_features_are_the_authors(grid):
    reference = golden('posenc_raw')
    assert reference.check(f'pos_{grid[0]}x{grid[1]}', fourier_features(*grid).numpy()) < 1e-6
