"""Confidence intervals for the difference of two runs: a paired bootstrap over their images.

Images are drawn from the test set with replacement, and their counts are summed and scored like
the counts of the whole set. Both runs are scored on the same draws, so that images which are
difficult for both do not widen the interval of the difference.
"""

import warnings
from dataclasses import dataclass
from os.path import commonprefix
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np

from mmbixt.errors import UserError
from mmbixt.evaluation.boundary import class_mean, class_scores, percent, scores
from mmbixt.evaluation.sums import ImageSums

LEVEL = 95  # per cent of the draws within an interval
DRAWS = 1000


@dataclass(frozen=True)
class Estimate:
    """Scores, or differences of scores, in per cent: of the test set, and of each of S draws."""

    value: np.ndarray  # (...)
    draws: np.ndarray  # (S,...)

    def __sub__(self, other: 'Estimate') -> 'Estimate':
        return Estimate(self.value - other.value, self.draws - other.draws)

    def over_classes(self) -> 'Estimate':
        """Means over the last axis, of the classes that occur in a draw."""
        return Estimate(class_mean(self.value), class_mean(self.draws))

    def interval(self) -> np.ndarray:
        """Bounds (2,...) that hold LEVEL per cent of the draws; NaN where all draws are NaN."""
        tail = (100 - LEVEL) / 2
        with warnings.catch_warnings():
            warnings.filterwarnings('ignore', 'All-NaN slice', RuntimeWarning)
            return np.nanpercentile(self.draws, [tail, 100 - tail], axis=0)


def paired(first: ImageSums, second: ImageSums) -> tuple[ImageSums, ImageSums]:
    """Both runs with their images in the same order; an error if their data differ.

    Folders and a common suffix of all names are ignored, because the runs may have been evaluated
    from files with different names.
    """
    if first.classes != second.classes:
        counts = f'{len(first.classes)} and {len(second.classes)}'
        raise UserError(f'the runs have different classes ({counts})')
    (names, first), (other_names, second) = map(_in_order, (first, second))
    if names != other_names:
        different = sorted({*names} ^ {*other_names}) or names
        raise UserError(
            f'the runs have {len(names):,} and {len(other_names):,} images; only one of them has '
            f'{different[0]}, for example'
        )
    same = (first.counts['all/true'] == second.counts['all/true']).all(1)
    if not same.all():
        raise UserError(
            f'the true labels of {(~same).sum():,} of {len(names):,} images differ between the '
            f'runs, for example of {first.images[np.argmin(same)]}'
        )
    return first, second


class RegionScores(NamedTuple):
    """Scores of the pixels of a region, per cent; see `mmbixt.evaluation.boundary`."""

    classes: Estimate  # IoU, for 'boundaryF...' F, of each class (K,); NaN without pixels
    mean: Estimate  # over the classes
    share: float | None  # of all pixels, per cent; None for 'boundary...'
    accuracy: float | None  # aAcc; None for 'boundary...'
    gap: Estimate | None  # relative loss of mIoU against all pixels, for bands


def score_regions(run: ImageSums) -> dict[str, RegionScores]:
    """Scores of each region by name. Runs of equally many images are scored on the same draws."""
    total, number = run.total(), len(run.images)
    overall, regions = scores(total), {}
    estimates = estimate(run, draw_weights(number, DRAWS if number > 1 else 1, seed=0))
    for name in dict.fromkeys(key.partition('/')[0] for key in estimates):
        classes = estimates.get(f'{name}/IoU', estimates.get(f'{name}/F'))
        mean, share, gap = classes.over_classes(), None, None
        if f'{name}/aAcc' in overall:
            share = 100 * total[f'{name}/true'].sum() / total['all/true'].sum()
        if name.startswith('band'):
            whole, lost = regions['all'].mean, regions['all'].mean - mean
            gap = Estimate(percent(lost.value, whole.value), percent(lost.draws, whole.draws))
        regions[name] = RegionScores(classes, mean, share, overall.get(f'{name}/aAcc'), gap)
    return regions


def draw_weights(images: int, draws: int, seed: int) -> np.ndarray:
    """Counts (S,N) of each of N images in each of S draws of N images."""
    random = np.random.default_rng(seed)
    return random.multinomial(images, np.full(images, 1 / images), draws).astype(float)


def estimate(run: ImageSums, weights: np.ndarray) -> dict[str, Estimate]:
    """Scores of each class (K,), by name as in `class_scores`, with the draws ``weights`` (S,N)."""
    values = class_scores(run.total())
    # exact: the counts are integers, and their sums stay below 2^53
    draws = class_scores({name: weights @ counts for name, counts in run.counts.items()})
    return {name: Estimate(value, draws[name]) for name, value in values.items()}


def _in_order(run: ImageSums) -> tuple[list[str], ImageSums]:
    """Names without folders and without their common suffix, sorted; the images in this order."""
    names = [PurePosixPath(name).name for name in run.images]
    common = len(commonprefix([name[::-1] for name in names]))  # noqa: RUF071 (not folders)
    names = [name[: len(name) - common] for name in names]
    order = sorted(range(len(names)), key=lambda i: (names[i], run.images[i]))
    counts = {name: values[order] for name, values in run.counts.items()}
    images = [run.images[i] for i in order]
    return [names[i] for i in order], ImageSums(images, run.classes, counts)
