"""Scores for the report, from the pixel counts of each image."""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mmbixt.evaluation.bootstrap import Estimate, draw_weights, estimate
from mmbixt.evaluation.boundary import scores
from mmbixt.evaluation.sums import ImageSums

# correlation of the thumbnails of near-identical images: frames of a video within about six of each
# other (CamVid: 0.99 at two, 0.97 at four, 0.94 at eight); unlike photographs have less than 0.9
ALIKE = 0.95


class RegionScores(NamedTuple):
    """Scores of the pixels of a region, per cent; see `mmbixt.evaluation.boundary`."""

    classes: np.ndarray  # IoU, for 'boundaryF...' F, of each class (K,); NaN without pixels
    mean: Estimate  # over the classes
    share: float | None  # of all pixels, per cent; None for 'boundary...'
    accuracy: float | None  # aAcc; None for 'boundary...'
    gap: Estimate | None  # relative loss of mIoU against all pixels, for bands


def describe(region: str) -> str:
    """A region in words: 'all', 'band3px', 'band0.02', 'boundary0.02', 'boundaryF3px' ..."""
    kind, width, pixels = re.fullmatch(r'(all|band|boundaryF?)([\d.]*)(px)?', region).groups()
    size = f'{width}\xa0px' if pixels else f'{100 * float(width or 0):g}\xa0% of the diagonal'
    words = dict(band='Band of {}', boundary='Boundary IoU, {}', boundaryF='Boundary F, {}')
    return words.get(kind, 'All pixels').format(size)


def score_regions(counts: ImageSums) -> dict[str, RegionScores]:
    """Scores of each region by name, with 1000 bootstrap draws if there are several images."""
    total, number = counts.total(), len(counts.images)
    overall, regions = scores(total), {}
    found = estimate(counts, draw_weights(number, 1000 if number > 1 else 1, seed=0))
    for name in dict.fromkeys(key.partition('/')[0] for key in found):
        classes = found.get(f'{name}/IoU', found.get(f'{name}/F'))
        mean, share, gap = classes.over_classes(), None, None
        if f'{name}/aAcc' in overall:
            share = 100 * total[f'{name}/true'].sum() / total['all/true'].sum()
        if name.startswith('band'):
            whole = regions['all'].mean
            gap = Estimate(loss(whole.value, mean.value), loss(whole.samples, mean.samples))
        accuracy = overall.get(f'{name}/aAcc')
        regions[name] = RegionScores(classes.value, mean, share, accuracy, gap)
    return regions


def loss(whole: np.ndarray, near: np.ndarray) -> np.ndarray:
    """100 (whole - near) / whole, of scores over all pixels and near boundaries; NaN for 0."""
    ratio = np.full(np.shape(whole), np.nan)
    return 100 * (1 - np.divide(near, whole, out=ratio, where=np.not_equal(whole, 0)))


def class_rows(counts: ImageSums, regions: dict[str, RegionScores], band: str | None) -> list[list]:
    """Rows of a table, one for each class in the truth or in a prediction, most pixels first: name,
    number of images, share of pixels, IoU, gap (if there is a band), scores of other regions."""
    true = counts.counts['all/true'].astype(np.int64)
    whole, *others = (region.classes for region in regions.values())
    gaps = [loss(whole, regions[band].classes)] if band else []
    columns = [counts.classes, (true > 0).sum(0).tolist(), 100 * true.sum(0) / true.sum()]
    columns += [whole, *gaps, *others]
    order = np.argsort(-true.sum(0), kind='stable')
    return [[column[k] for column in columns] for k in order if not np.isnan(whole[k])]


def choose_images(
    counts: ImageSums, band: str, number: int, thumbnail: Callable[[int], np.ndarray]
) -> tuple[np.ndarray, list, list]:
    """mIoU (N,) of each image in a band, and the indices of the worst and of the best images, at
    most ``number`` of each, the worst and the best first. No image is in both lists, and images
    without a score (NaN) are in neither."""
    names = [name for name in counts.counts if name.rpartition('/')[0] in ('all', band)]
    images = ({key: counts.counts[key][i] for key in names} for i in range(len(counts.images)))
    found = np.array([scores(one)[f'{band}/mIoU'] for one in images])
    order = np.argsort(found, kind='stable')[: np.count_nonzero(~np.isnan(found))].tolist()
    worst = _distinct(order, number, thumbnail)
    best = _distinct([i for i in reversed(order) if i not in worst], number, thumbnail)
    return found, worst, best


def _distinct(order: list[int], number: int, thumbnail: Callable[[int], np.ndarray]) -> list[int]:
    """The first ``number`` images of an order; alike ones only if there are too few others."""
    chosen, vectors, alike = [], [], []
    for i in order[: 10 * number] if len(order) > number else ():  # reading images takes time
        vector = thumbnail(i).astype(float).ravel()
        vector -= vector.mean()
        vector /= max(np.linalg.norm(vector), 1e-9)
        if max((vector @ other for other in vectors), default=0) > ALIKE:
            alike.append(i)
        elif len(chosen) < number:
            chosen.append(i)
            vectors.append(vector)
    some = {*chosen, *alike[: number - len(chosen)]} or {*order}
    return [i for i in order if i in some]
