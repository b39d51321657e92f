"""Images of any number of channels and any type are shown."""

import cv2
import numpy as np

from mmbixt.visualization.images import decode_rgb

BGRD = np.random.default_rng(0).integers(0, 256, (6, 8, 4), np.uint8)


def test_the_fourth_channel_is_not_opacity():
    content = cv2.imencode('.png', BGRD)[1]
    np.testing.assert_array_equal(decode_rgb(content), BGRD[..., 2::-1])


def test_floating_point_numbers_are_stretched():
    for channels in (1, 3, 4):
        values = np.full((6, 8, channels), 5, np.float32)
        values[0, 0], values[1, 1] = 3, 7
        shown = decode_rgb(cv2.imencode('.tiff', values)[1])
        assert shown.shape == (6, 8, 3)
        assert [*shown[[0, 1, 2], [0, 1, 2], 0]] == [0, 255, 127]


def test_other_files_are_no_images():
    assert decode_rgb(np.zeros(0, np.uint8)) is None
    assert decode_rgb(np.zeros(9, np.uint8)) is None
