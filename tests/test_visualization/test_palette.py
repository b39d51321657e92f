import cv2
import numpy as np
import pytest

from mmbixt.visualization.palette import distinct_palette


@pytest.mark.parametrize(('count', 'least'), [(11, 40), (150, 10)])
def test_generated_colours_differ_from_one_another_and_from_white(count, least):
    colours = np.float32([*distinct_palette(count), (255, 255, 255)]) / 255
    lab = cv2.cvtColor(colours[None], cv2.COLOR_RGB2Lab)[0]
    distances = np.linalg.norm(lab[:, None] - lab, axis=-1)
    assert distances[np.triu_indices(count + 1, 1)].min() > least
