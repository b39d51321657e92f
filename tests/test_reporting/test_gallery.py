import base64
from io import BytesIO

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from mmbixt.reporting.gallery import WIDTH, ImagesMissingError, embed, find_images


def test_images_are_found_by_their_names():
    available = ['a.jpg', 'b.jpg', 'c.jpg']
    assert find_images(available, ['c.jpg', 'a.jpg']) == [2, 0]
    assert find_images(available, ['b', 'folder/c.png']) == [1, 2]  # of boundary_eval.py
    with pytest.raises(ImagesMissingError, match=r'd\.jpg, for one, is not among its 3'):
        find_images(available, ['a.jpg', 'd.jpg'])


def test_embedded_picture_is_the_figure():
    figure = Figure(figsize=(4, 2), dpi=50, facecolor='red')
    found = embed(figure)
    kind, data = found.source.split(',')
    assert kind == 'data:image/webp;base64'
    picture = Image.open(BytesIO(base64.b64decode(data)))
    assert picture.size == (found.width, found.height) == (200, 100)
    np.testing.assert_allclose(np.asarray(picture.convert('RGB')).mean((0, 1)), [255, 0, 0], atol=4)


def test_large_figures_are_made_smaller():
    assert embed(Figure(figsize=(2 * WIDTH / 100, 1), dpi=100)).width == WIDTH
