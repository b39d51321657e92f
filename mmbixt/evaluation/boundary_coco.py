"""Boundary AP of instance segmentation: COCO's mask AP with another overlap of two masks.

    overlap(A, B) = min(IoU(A, B), IoU(band(A), band(B)))

``band`` is the inner band of a mask along its boundary, whose width is a fraction of the diagonal
of the image (Cheng et al., Boundary IoU, CVPR 2021).
"""

import cv2
import numpy as np
from pycocotools import mask as coder
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mmbixt.evaluation.boundary import ratio_pixels


def encoded_boundary(mask: dict, ratio: float = 0.02) -> dict:
    """The inner band of a mask; both are run-length encoded by pycocotools.

    Distances are Chebyshev distances; pixels beyond the image border are outside of the mask.
    """
    distance = ratio_pixels(ratio, mask['size'])
    x, y, width, height = coder.toBbox(mask).astype(int)
    if min(width, height) <= 2 * distance:
        return mask  # too narrow: erosion would leave nothing
    pixels = coder.decode(mask)
    box = pixels[y : y + height, x : x + width].T  # pycocotools stores columns
    square = np.ones((2 * distance + 1,) * 2, np.uint8)
    box -= cv2.erode(box, square, borderType=cv2.BORDER_CONSTANT, borderValue=0)
    return coder.encode(pixels)


class BoundaryCOCOeval(COCOeval):
    """``COCOeval`` with the minimum of mask IoU and Boundary IoU as overlap.

    For crowds, whose objects have no contours, the overlap is that of the masks, as in COCO.

    Args:
        truths: annotations with masks.
        detections: ``truths.loadRes(...)`` of results with masks.
        ratio: width of the inner bands, as a fraction of the diagonal of the image.
    """

    def __init__(self, truths: COCO, detections: COCO, ratio: float = 0.02) -> None:
        super().__init__(truths, detections, iouType='segm')
        self.ratio = ratio

    def computeIoU(self, image: int, category: int) -> np.ndarray | list:  # noqa: N802
        """Overlaps (D,G) of D detections and G truths; [] if there are neither."""
        overlaps = super().computeIoU(image, category)
        if len(overlaps) == 0:
            return overlaps
        if np.min(overlaps) < 0:
            raise ValueError(
                f'Image {image}: masks of the detections have another size than those of the '
                'truths, which is the size of the image.'
            )
        # in the order of COCOeval: the highest scores first
        categories = [category] if self.params.useCats else self.params.catIds
        detections = [d for c in categories for d in self._dts[image, c]]
        detections.sort(key=lambda detection: -detection['score'])
        truths = [truth for c in categories for truth in self._gts[image, c]]
        # without overlap of the masks their bands do not overlap: most bands are not needed
        overlapping = (overlaps > 0) & [not truth['iscrowd'] for truth in truths]
        rows, columns = np.flatnonzero(overlapping.any(1)), np.flatnonzero(overlapping.any(0))
        detected = [self._boundary(detections[row]) for row in rows]
        true = [self._boundary(truths[column]) for column in columns]
        pairs = np.ix_(rows, columns)
        boundary_iou = coder.iou(detected, true, [0] * len(true))
        overlaps[pairs] = np.minimum(overlaps[pairs], boundary_iou)
        return overlaps

    def _boundary(self, annotation: dict) -> dict:
        """The inner band; cached in the annotation, because each validation has the same truths."""
        key = f'boundary_{self.ratio}'
        if key not in annotation:
            annotation[key] = encoded_boundary(annotation['segmentation'], self.ratio)
        return annotation[key]
