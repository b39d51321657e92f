"""Images of any number of channels and any type, to look at them."""

import numpy as np


def as_rgb(image: np.ndarray) -> np.ndarray:
    """The first three channels (or the first, as grey) of (H,W[,C]), BGR, to (H,W,3), RGB, uint8.

    Other types than uint8 are stretched from the smallest to the largest finite value.
    """
    image = np.atleast_3d(image)
    image = image[..., 2::-1] if image.shape[2] >= 3 else image[..., :1].repeat(3, 2)
    if image.dtype != np.uint8:
        image = np.nan_to_num(image.astype(np.float32), posinf=0, neginf=0)
        low, high = image.min(), image.max()
        image = ((image - low) * (255 / max(high - low, 1e-12))).astype(np.uint8)
    return np.ascontiguousarray(image)
