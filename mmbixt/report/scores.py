"""Names of regions in words, and the rows of the table of classes."""

import re

import numpy as np

from mmbixt.evaluation.bootstrap import RegionScores
from mmbixt.evaluation.boundary import percent
from mmbixt.evaluation.sums import ImageSums


def describe(region: str) -> str:
    """A region in words: 'all', 'band3px', 'band0.02', 'boundary0.02', 'boundaryF3px' ..."""
    kind, width, pixels = re.fullmatch(r'(all|band|boundaryF?)([\d.]*)(px)?', region).groups()
    size = f'{width}\xa0px' if pixels else f'{100 * float(width or 0):g}\xa0% of the diagonal'
    words = dict(band='Band of {}', boundary='Boundary IoU, {}', boundaryF='Boundary F, {}')
    return words.get(kind, 'All pixels').format(size)


def class_rows(counts: ImageSums, regions: dict[str, RegionScores], band: str | None) -> list[list]:
    """Rows of a table, one for each class in the truth or in a prediction, most pixels first: name,
    number of images, share of pixels, IoU, gap (if there is a band), scores of other regions."""
    true = counts.counts['all/true'].astype(np.int64)
    whole, *others = (region.classes.value for region in regions.values())
    learned = np.where(whole >= 1, whole, np.nan)  # a share of almost nothing says nothing
    gaps = [percent(whole - regions[band].classes.value, learned)] if band else []
    columns = [counts.classes, (true > 0).sum(0).tolist(), 100 * true.sum(0) / true.sum()]
    columns += [whole, *gaps, *others]
    order = np.argsort(-true.sum(0), kind='stable')
    return [[column[k] for column in columns] for k in order if not np.isnan(whole[k])]
