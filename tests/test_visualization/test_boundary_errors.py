"""Kinds of errors against their definition for each pixel."""

import numpy as np
import pytest
from label_maps import label_maps

from mmbixt.visualization.boundary_errors import Pixel, error_map


def kind_by_hand(truth, prediction, width, y, x):
    if truth[y, x] == 255:
        return Pixel.IGNORED
    around = truth[max(0, y - width) : y + width + 1, max(0, x - width) : x + width + 1]
    near = {*around.ravel().tolist()} - {255}
    if len(near) == 1:
        return Pixel.OUTSIDE if truth[y, x] == prediction[y, x] else Pixel.FAR
    if truth[y, x] == prediction[y, x]:
        return Pixel.RIGHT
    return Pixel.MISSED if prediction[y, x] in near else Pixel.WRONG


@pytest.mark.parametrize('shape', [(20, 31), (1, 40)])
@pytest.mark.parametrize('width', [1, 5, 0.05])
def test_kinds_against_the_definition(shape, width):
    pixels = width if isinstance(width, int) else max(1, round(width * np.hypot(*shape)))
    truth, prediction = next(label_maps([shape], 0.4))
    by_hand = [kind_by_hand(truth, prediction, pixels, *at) for at in np.ndindex(shape)]
    np.testing.assert_array_equal(error_map(truth, prediction, width).ravel(), by_hand)
    shifted = np.where(truth == 255, 0, truth + 1)
    np.testing.assert_array_equal(error_map(shifted, prediction + 1, width, 0).ravel(), by_hand)
