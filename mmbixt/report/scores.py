"""Scores for the report, from the pixel counts of each image."""

import re
from typing import NamedTuple

import numpy as np

from mmbixt.evaluation.bootstrap import Estimate, draw_weights, estimate
from mmbixt.evaluation.boundary import percent, scores
from mmbixt.evaluation.sums import ImageSums


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
    estimates = estimate(counts, draw_weights(number, 1000 if number > 1 else 1, seed=0))
    for name in dict.fromkeys(key.partition('/')[0] for key in estimates):
        classes = estimates.get(f'{name}/IoU', estimates.get(f'{name}/F'))
        mean, share, gap = classes.over_classes(), None, None
        if f'{name}/aAcc' in overall:
            share = 100 * total[f'{name}/true'].sum() / total['all/true'].sum()
        if name.startswith('band'):
            whole, lost = regions['all'].mean, regions['all'].mean - mean
            gap = Estimate(percent(lost.value, whole.value), percent(lost.samples, whole.samples))
        regions[name] = RegionScores(classes.value, mean, share, overall.get(f'{name}/aAcc'), gap)
    return regions


def class_rows(counts: ImageSums, regions: dict[str, RegionScores], band: str | None) -> list[list]:
    """Rows of a table, one for each class in the truth or in a prediction, most pixels first: name,
    number of images, share of pixels, IoU, gap (if there is a band), scores of other regions."""
    true = counts.counts['all/true'].astype(np.int64)
    whole, *others = (region.classes for region in regions.values())
    learned = np.where(whole >= 1, whole, np.nan)  # a share of almost nothing says nothing
    gaps = [percent(whole - regions[band].classes, learned)] if band else []
    columns = [counts.classes, (true > 0).sum(0).tolist(), 100 * true.sum(0) / true.sum()]
    columns += [whole, *gaps, *others]
    order = np.argsort(-true.sum(0), kind='stable')
    return [[column[k] for column in columns] for k in order if not np.isnan(whole[k])]
