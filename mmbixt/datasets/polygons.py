"""Masks as polygons, the way COCO stores them."""

import cv2
import numpy as np

#: Contours are traced on a finer grid, so that they run along the borders of the pixels.
_FINE = 4
#: How far a polygon may stray from the border of the mask, in pixels.
_TOLERANCE = 0.35


def mask_to_polygons(mask: np.ndarray) -> list[list[float]]:
    """Outline a mask.

    Args:
        mask: (H, W) bool.

    Returns:
        Polygons ``[x1, y1, x2, y2, ...]`` of at least 3 points that cover the mask together.
    """
    fine = np.repeat(np.repeat(mask.astype(np.uint8), _FINE, 0), _FINE, 1)
    polygons = []
    for piece in _without_holes(fine):
        contours, _ = cv2.findContours(piece, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
        for contour in contours:
            contour = cv2.approxPolyDP(contour, _TOLERANCE * _FINE, True)
            if len(contour) >= 3:
                points = (contour.reshape(-1) + 0.5) / _FINE
                polygons.append(np.round(points, 2).tolist())
    return polygons


def _without_holes(mask: np.ndarray) -> list[np.ndarray]:
    """Cut a mask from top to bottom through its holes, which a polygon cannot have."""
    contours, hierarchy = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    if hierarchy is None:
        return []
    holes = [
        contour for contour, (*_, parent) in zip(contours, hierarchy[0], strict=True) if parent >= 0
    ]
    cuts = sorted({int(hole[:, 0, 0].mean()) for hole in holes})
    columns = np.arange(mask.shape[1])
    starts, ends = [0, *cuts], [*cuts, mask.shape[1]]
    return [
        mask * ((columns >= left) & (columns < right))
        for left, right in zip(starts, ends, strict=True)
    ]
