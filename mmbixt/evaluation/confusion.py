"""Counts of pixels by true and predicted class, and what follows from them."""

import numpy as np


def confusion_matrix(
    truth: np.ndarray, prediction: np.ndarray, num_classes: int, ignore_index: int = 255
) -> np.ndarray:
    """Pixels by true class (rows) and predicted class (columns).

    Args:
        truth: label map (H,W).
        prediction: label map (H,W).
        num_classes: classes K; labels are 0 to K - 1.
        ignore_index: true label of pixels that do not count.

    Returns:
        Counts (K,K).
    """
    counts = truth != ignore_index
    pairs = truth[counts].astype(np.int64) * num_classes + prediction[counts]
    return np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, num_classes)


def class_iou(confusion: np.ndarray) -> np.ndarray:
    """Intersection over union of each class (K,), NaN for a class that the truth lacks."""
    truth, hits = confusion.sum(1), np.diag(confusion)
    union = truth + confusion.sum(0) - hits
    return np.where(truth > 0, hits / np.maximum(union, 1), np.nan)
