"""Read image files of any number of channels and any type, to look at them."""

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
        image = None if image is None else _first_channels(image)
    return None if image is None else cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def _first_channels(image: np.ndarray) -> np.ndarray:
    """Three channels, from the smallest to the largest finite value: (H,W[,C]) to (H,W,3)."""
    image = np.atleast_3d(image)
    image = image[..., :3] if image.shape[2] >= 3 else image[..., :1].repeat(3, 2)
    image = np.nan_to_num(image.astype(np.float32), posinf=0, neginf=0)
    low, high = image.min(), image.max()
    return ((image - low) * (255 / max(high - low, 1e-12))).astype(np.uint8)
