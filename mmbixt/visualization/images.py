"""Images of any number of channels and any type, to look at them."""

import cv2
import numpy as np


def decode_rgb(content: np.ndarray) -> np.ndarray | None:
    """The pixels of a file (H,W,3), RGB, uint8; None if it is not readable.

    Args:
        content: the bytes of the file.
    """
    if not content.size:
        return None
    image = cv2.imdecode(content, cv2.IMREAD_COLOR)
    if image is None:  # of floating point numbers
        image = cv2.imdecode(content, cv2.IMREAD_UNCHANGED)
    return None if image is None else as_rgb(image)


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
