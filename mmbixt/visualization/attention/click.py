"""A point of an image, chosen by a click. Nothing else here opens a window."""

import numpy as np

from mmbixt.visualization.attention.choices import AttentionPictureError


def click_point(image: np.ndarray) -> tuple[float, float]:
    """(x, y) in pixels of an image (H,W,3), which is shown in a window until it is clicked."""
    from matplotlib import pyplot

    figure, ax = pyplot.subplots(layout='constrained')
    if pyplot.get_backend().lower() == 'agg':  # what matplotlib takes where there is no display
        pyplot.close(figure)
        raise AttentionPictureError(
            '--click needs a display, and there is none. Give the point: --point X Y.'
        )
    figure.suptitle('Click the point whose attention is to be drawn')
    ax.imshow(image)
    clicked = figure.ginput(1, timeout=0)
    pyplot.close(figure)
    if not clicked:
        raise AttentionPictureError('The window was closed without a click.')
    return clicked[0]
