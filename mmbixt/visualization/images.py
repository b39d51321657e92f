"""Images of any number of channels and any type, to look at them."""

import numpy as np


def as_rgb(image: np.ndarray, is_rgb: bool = False) -> np.ndarray:
    """The first three channels (or the first, as grey) of (H,W[,C]) as (H,W,3), RGB, uint8.

    They are BGR, unless ``is_rgb``. Other types than uint8 are stretched from the smallest to the
    largest finite value.
    """
    image = np.atleast_3d(image)
    image = image[..., :3] if image.shape[2] >= 3 else image[..., :1].repeat(3, 2)
    image = image if is_rgb else image[..., ::-1]
    if image.dtype != np.uint8:
        image = np.nan_to_num(image.astype(np.float32), posinf=0, neginf=0)
        low, high = image.min(), image.max()
        image = ((image - low) * (255 / max(high - low, 1e-12))).astype(np.uint8)
    return np.ascontiguousarray(image)
