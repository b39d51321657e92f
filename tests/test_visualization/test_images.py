"""Images of any number of channels and any type are shown."""

import cv2
import numpy as np

from mmbixt.visualization.images import decode_rgb


def test_any_channels_and_types():
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 4), np.uint8)  # not opacity
    shown = decode_rgb(cv2.imencode('.png', pixels)[1])
    np.testing.assert_array_equal(shown, pixels[..., 2::-1])
    for channels in (1, 3, 4):  # numbers are stretched
        values = np.full((6, 8, channels), 5, np.float32)
        values[0, 0], values[1, 1] = 3, 7
        shown = decode_rgb(cv2.imencode('.tiff', values)[1])
        assert [*shown[[0, 1, 2], [0, 1, 2], 0]] == [0, 255, 127]
    for other in (np.zeros(0, np.uint8), np.zeros(9, np.uint8)):
        assert decode_rgb(other) is None
