"""Agreement of label maps near boundaries: counts of pixels per class, and scores of their sums.

Counts are summed over a data set before anything is divided, and are named ``where/what``:

===============  ===============================================================  ==================
where            which pixels                                                     what
===============  ===============================================================  ==================
``all``          all valid pixels                                                 intersect,
``band3px``      at most 3 pixels from another label of the truth, on both sides  predicted, true
                 of its boundaries (a trimap); the image border is not one
``band0.02``     the same; the width is a fraction of the image's diagonal
``boundary0.02`` inner band of each class, in truth and in prediction: pixels of   intersect, union
                 the class near another class or the image border, within a
                 fraction of the diagonal: Boundary IoU (Cheng et al., CVPR 2021)
``boundaryF3px`` pixels of each class that touch another label, matched within    predicted, true,
                 3 pixels (Euclidean distance); only on request                   matched_predicted,
                                                                                  matched_true
===============  ===============================================================  ==================

Scores are percentages with the same names. Of each class, from the summed counts::

    IoU = intersect / union              union = predicted + true - intersect
    Acc = intersect / true
    F   = 2 P R / (P + R)                P = matched_predicted / predicted, R = matched_true / true

``mIoU``, ``mAcc`` and ``mF`` are means over classes, ``aAcc`` is the fraction of correct pixels,
and ``gap`` = (all - band) / all of mIoU. As in mmseg's ``IoUMetric``, 0 / 0 is NaN and means ignore
NaN: a class in neither truth nor prediction does not count, and a class that is only predicted has
an IoU of 0 and no Acc. Over ``all`` pixels the scores equal those of ``IoUMetric``; over a band
they equal those of ``IoUMetric`` with the truth ignored outside of the band.

Pixels that the truth ignores do not count and form no boundary, both in truth and in prediction.
"""

import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral

import cv2
import numpy as np

WIDTHS = (1, 3, 5, 0.02)
RATIOS = (0.02, 0.005)
# default band for a single boundary mIoU: annotations are accurate to about a pixel, and much wider
# bands contain most of the pixels of small and thin objects
MAIN_BAND = 'band3px'


def image_sums(
    truth: np.ndarray,
    prediction: np.ndarray,
    num_classes: int,
    widths: Sequence[int | float] = WIDTHS,
    ratios: Sequence[float] = RATIOS,
    tolerances: Sequence[float] = (),
    ignore_index: int = 255,
) -> dict[str, np.ndarray]:
    """All counts (K,) of an image by name, as described in the docstring of the module.

    Args:
        truth: label map (H,W).
        prediction: label map (H,W).
        num_classes: classes K; labels are 0 to K - 1.
        widths: widths of bands, in pixels (int) or as fractions of the diagonal (float below 1).
        ratios: widths for Boundary IoU, as fractions of the diagonal.
        tolerances: for the F score, in pixels; slower than all other scores together.
        ignore_index: true label of pixels that do not count.
    """
    if truth.ndim != 2 or truth.shape != prediction.shape:
        raise ValueError(
            'truth and prediction must be label maps (H,W) of one size, '
            f'got {truth.shape} and {prediction.shape}'
        )
    valid = truth != ignore_index
    truth = compact_labels(truth, valid, num_classes, 'truth')
    prediction = compact_labels(prediction, valid, num_classes, 'prediction')
    bands = {band_name(width): band_pixels(width, truth.shape) for width in widths}
    contours = {f'boundary{ratio:g}': ratio_pixels(ratio, truth.shape) for ratio in ratios}
    near_true = near_other_labels(truth, valid, [*bands.values(), *contours.values()])
    near_predicted = near_other_labels(prediction, valid, contours.values())
    right, wrong, sums = truth == prediction, truth != prediction, {}

    def count(labels: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return np.bincount(labels[mask], minlength=num_classes)

    for where, width in {'all': None, **bands}.items():
        mask = valid if width is None else near_true[width]
        intersect = sums[f'{where}/intersect'] = count(truth, mask & right)
        # wrong pixels are few: faster than counting all pixels three times
        sums[f'{where}/predicted'] = intersect + count(prediction, mask & wrong)
        sums[f'{where}/true'] = intersect + count(truth, mask & wrong)
    for where, width in contours.items():
        frame = valid.copy()
        frame[width:-width, width:-width] = False
        in_truth, in_prediction = near_true[width] | frame, near_predicted[width] | frame
        intersect = count(truth, in_truth & in_prediction & right)
        union = count(truth, in_truth) + count(prediction, in_prediction) - intersect
        sums |= {f'{where}/intersect': intersect, f'{where}/union': union}
    if tolerances:
        sums |= boundary_f_sums(truth, prediction, valid, num_classes, tolerances)
    return sums


def compact_labels(
    labels: np.ndarray, valid: np.ndarray, num_classes: int, name: str
) -> np.ndarray:
    """Labels (H,W) in the smallest type that OpenCV filters, 0 where not valid."""
    if num_classes > 2**16:
        raise ValueError(f'at most {2**16} classes are possible, got {num_classes}')
    labels = np.where(valid, labels, 0)
    for label in (labels.min(initial=0), labels.max(initial=0)):
        if not 0 <= label < num_classes:
            raise ValueError(
                f'the {name} has label {label}, but with {num_classes} classes labels are '
                f'0 to {num_classes - 1}'
            )
    return labels.astype(np.uint8 if num_classes <= 2**8 else np.uint16)


def ratio_pixels(ratio: float, shape: tuple[int, int]) -> int:
    """A fraction of the diagonal of an image (H,W), in whole pixels, at least one."""
    if not 0 < ratio < 1:
        raise ValueError(f'ratios are fractions of the diagonal, between 0 and 1, got {ratio}')
    return max(1, round(ratio * float(np.hypot(*shape))))


def band_name(width: int | float) -> str:
    return f'band{width}px' if isinstance(width, Integral) else f'band{width:g}'


def band_pixels(width: int | float, shape: tuple[int, int]) -> int:
    """A width of a band in pixels; a float is a fraction of the diagonal of an image (H,W)."""
    if isinstance(width, Integral) and width >= 1:
        return int(width)
    if 0 < width < 1:
        return ratio_pixels(width, shape)
    raise ValueError(
        f'widths are pixels (int) or a fraction of the diagonal (float below 1), got {width}'
    )


def band_width(text: str) -> int | float:
    """The width of a band from its text: '3' pixels, '0.02' of the diagonal."""
    number = int(text) if text.isdecimal() else float(text)
    band_pixels(number, (1, 1))  # raises for a wrong width
    return number


def near_other_labels(
    labels: np.ndarray, valid: np.ndarray, distances: Iterable[int]
) -> dict[int, np.ndarray]:
    """Masks (H,W), by distance, of the valid pixels with another label within this distance.

    A window has another label if its minimum and its maximum differ: two filters are enough for
    all classes. Each distance uses the results of the distance before. Labels (H,W) are 0 where not
    valid (H,W); distances are Chebyshev distances (a diagonal step counts as one).
    """
    masks = {}
    lowest = np.where(valid, labels, np.iinfo(labels.dtype).max)
    highest, reached = labels, 0
    for distance in sorted({*distances}):
        kernel = np.ones((2 * (distance - reached) + 1,) * 2, np.uint8)
        # at the image border OpenCV uses the part of the window inside of the image
        lowest, highest = cv2.erode(lowest, kernel), cv2.dilate(highest, kernel)
        masks[distance] = valid & (lowest != highest)
        reached = distance
    return masks


def boundary_f_sums(
    truth: np.ndarray,
    prediction: np.ndarray,
    valid: np.ndarray,
    num_classes: int,
    tolerances: Sequence[float],
) -> dict[str, np.ndarray]:
    """Counts (K,) by name: boundary pixels of each class, and how many of them have a boundary
    pixel of this class nearby in the other label map. Labels (H,W) are 0 where not valid (H,W)."""
    edges = [
        np.where(near_other_labels(labels, valid, [1])[1], labels, np.int32(-1))
        for labels in (truth, prediction)
    ]
    true, predicted = (np.bincount(edge[edge >= 0], minlength=num_classes) for edge in edges)
    matched_true, matched_predicted = np.zeros((2, len(tolerances), num_classes), np.int64)
    for k in np.flatnonzero((true > 0) & (predicted > 0)):
        true_edge, predicted_edge = (edge == k for edge in edges)
        left, top, width, height = cv2.boundingRect((true_edge | predicted_edge).view(np.uint8))
        window = slice(top, top + height), slice(left, left + width)
        true_edge, predicted_edge = true_edge[window], predicted_edge[window]
        matched_true[:, k] = _matched(true_edge, predicted_edge, tolerances)
        matched_predicted[:, k] = _matched(predicted_edge, true_edge, tolerances)
    sums = {}
    for i, tolerance in enumerate(tolerances):
        where = f'boundaryF{tolerance:g}px'
        sums |= {f'{where}/matched_predicted': matched_predicted[i], f'{where}/true': true}
        sums |= {f'{where}/matched_true': matched_true[i], f'{where}/predicted': predicted}
    return sums


def class_scores(sums: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Percentages of each class (K,), NaN where there is nothing to score, from summed counts."""
    places = defaultdict(dict)
    for name, counts in sums.items():
        where, _, what = name.rpartition('/')
        places[where][what] = counts
    by_class = {}
    for where, n in places.items():
        if 'matched_true' in n:
            precision = np.nan_to_num(percent(n['matched_predicted'], n['predicted']))
            recall = np.nan_to_num(percent(n['matched_true'], n['true']))
            score = 2 * precision * recall / np.maximum(precision + recall, np.finfo(float).tiny)
            # 0 where only one of the label maps has a boundary, NaN where neither has
            by_class[f'{where}/F'] = np.where(n['predicted'] + n['true'] > 0, score, np.nan)
        elif 'union' in n:
            by_class[f'{where}/IoU'] = percent(n['intersect'], n['union'])
        else:
            union = n['predicted'] + n['true'] - n['intersect']
            by_class[f'{where}/IoU'] = percent(n['intersect'], union)
            by_class[f'{where}/Acc'] = percent(n['intersect'], n['true'])
    return by_class


def scores(sums: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Percentages over all classes, NaN where there is nothing to score, from summed counts."""
    means = {}
    for name, values in class_scores(sums).items():
        where, _, what = name.rpartition('/')
        means[f'{where}/m{what}'] = float(class_mean(values))
        if what == 'Acc':
            right, true = sums[f'{where}/intersect'].sum(), sums[f'{where}/true'].sum()
            means[f'{where}/aAcc'] = float(percent(right, true))
            if where != 'all':
                drop = means['all/mIoU'] - means[f'{where}/mIoU']
                means[f'{where}/gap'] = float(percent(drop, means['all/mIoU']))
    return means


def main_band(names: Iterable[str]) -> str | None:
    """The band for a single boundary score, from names ``where/what``; None if there is no band."""
    bands = [name.partition('/')[0] for name in names if name.startswith('band')]
    return MAIN_BAND if MAIN_BAND in bands else next(iter(bands), None)


def class_mean(values: np.ndarray) -> np.ndarray:
    """Mean (...) of scores (...,K) over the classes that are not NaN; NaN where all are."""
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'Mean of empty slice', RuntimeWarning)
        return np.nanmean(values, axis=-1)


def _matched(pixels: np.ndarray, targets: np.ndarray, tolerances: Sequence[float]) -> list[int]:
    """Numbers of pixels of a mask (H,W) with a pixel of ``targets`` (H,W) within each tolerance."""
    others = (~targets).view(np.uint8)
    distance = cv2.distanceTransform(others, cv2.DIST_L2, cv2.DIST_MASK_PRECISE)[pixels]
    return [np.count_nonzero(distance <= tolerance) for tolerance in tolerances]


def percent(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """100 part / whole; NaN where the whole is 0."""
    part, whole = np.asarray(part, float), np.asarray(whole, float)
    return 100 * np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole != 0)
