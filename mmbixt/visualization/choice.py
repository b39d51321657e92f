"""Choose the images of an evaluation to draw: the worst or the best, and no two alike."""

from collections.abc import Callable, Collection

import cv2
import numpy as np

from mmbixt.evaluation.boundary import class_mean, class_scores
from mmbixt.evaluation.sums import ImageSums

# correlation of the thumbnails of near-identical images: frames of a video within about six of each
# other (CamVid: 0.99 at two, 0.97 at four, 0.94 at eight); unlike photographs have less than 0.9
ALIKE = 0.95
SIDE = 16  # of a thumbnail
Read = Callable[[int], np.ndarray]  # the image (H,W,3) of an index


def image_scores(counts: ImageSums, band: str) -> np.ndarray:
    """mIoU (N,) of each image in a band; NaN for images without a boundary."""
    near = {k: n for k, n in counts.counts.items() if k.startswith(f'{band}/')}
    return class_mean(class_scores(near)[f'{band}/IoU'])


def worst_images(
    scores: np.ndarray, number: int, read: Read, leave_out: Collection[int] = ()
) -> list[int]:
    """Indices of at most ``number`` images, the worst first, from their scores (N,); images without
    a score (NaN), like a worse one, or in ``leave_out`` are not among them."""
    chosen = {}
    for i in np.argsort(scores, kind='stable').tolist():
        if len(chosen) == number or np.isnan(scores[i]):
            break
        if i in leave_out:
            continue
        small = cv2.resize(read(i), (SIDE, SIDE), interpolation=cv2.INTER_AREA)
        vector = small.mean(-1, dtype=float).ravel()
        vector -= vector.mean()
        vector /= max(np.linalg.norm(vector), 1e-9)
        if all(vector @ other <= ALIKE for other in chosen.values()):
            chosen[i] = vector
    return list(chosen)


def worst_and_best(scores: np.ndarray, number: int, read: Read) -> tuple[list[int], list[int]]:
    """The worst images, then the best, each list sorted; no image is in both."""
    worst = worst_images(scores, number, read)
    return worst, worst_images(-scores, number, read, leave_out=worst)
