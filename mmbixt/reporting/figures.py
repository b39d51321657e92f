"""Numbers of a report, from the counts of each image."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmbixt.evaluation.bootstrap import Estimate, draw_weights, estimate
from mmbixt.evaluation.boundary import class_scores, scores
from mmbixt.evaluation.sums import ImageSums

BAND = 'band3px'  # the one that a report is about, where it was measured
DRAWS = 1000


@dataclass(frozen=True)
class Score:
    """A percentage.

    Attributes:
        value: of the images at hand.
        interval: of 95 %, of other sets of images like this one; None where nothing is known.
    """

    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Place:
    """Scores of the pixels that count somewhere, such as in a band; see `evaluation.boundary`.

    Attributes:
        name: 'all', 'band3px', 'boundary0.02' ...
        share: of all pixels, per cent; None where each class has pixels of its own.
        mean: over the classes, of IoU or, for 'boundaryF...', of F.
        accuracy: share of right pixels; None as above.
        gap: by what share of itself the mean over all pixels is larger; None but for bands.
    """

    name: str
    share: float | None
    mean: Score
    accuracy: float | None
    gap: Score | None


@dataclass(frozen=True)
class ClassRow:
    """A class that is in the truth or in a prediction.

    Attributes:
        name: of the class.
        images: in how many it is, by the truth.
        share: of all pixels, by the truth, per cent.
        scores: IoU or F by place, NaN where there is nothing to score.
        gap: by what share of itself IoU over all pixels is larger than in the band, per cent.
    """

    name: str
    images: int
    share: float
    scores: dict[str, float]
    gap: float


def words(place: str) -> str:
    """Which pixels count, in the words of a report."""
    if place == 'all':
        return 'All pixels'
    if place.startswith('boundaryF'):
        return f'Boundary F, {_width(place.removeprefix("boundaryF"))}'
    if place.startswith('boundary'):
        return f'Boundary IoU, {_width(place.removeprefix("boundary"))}'
    return f'Band of {_width(place.removeprefix("band"))}'


def band_width(place: str) -> int | float:
    """The width of a band, as in `mmbixt.evaluation.boundary`."""
    text = place.removeprefix('band')
    return int(text.removesuffix('px')) if text.endswith('px') else float(text)


def _width(text: str) -> str:
    if text.endswith('px'):
        return f'{text.removesuffix("px")}\xa0px'
    return f'{100 * float(text):g}\xa0% of the diagonal'


def bands_of(counted: ImageSums) -> list[str]:
    """Names of the bands that were counted."""
    names = dict.fromkeys(name.rpartition('/')[0] for name in counted.counts)
    return [name for name in names if name.startswith('band')]


def choose_band(bands: Sequence[str]) -> str | None:
    """The band that a report is about; None if there is none."""
    return BAND if BAND in bands else next(iter(bands), None)


def place_scores(counted: ImageSums) -> list[Place]:
    """Scores at every place, in the order in which they were counted."""
    total = counted.total()
    found = scores(total)
    several = len(counted.images) > 1
    weights = draw_weights(len(counted.images), DRAWS if several else 1, seed=0)
    means = {
        name.rpartition('/')[0]: one.over_classes()
        for name, one in estimate(counted, weights).items()
        if not name.endswith('/Acc')
    }
    everywhere = means['all']
    pixels = total['all/true'].sum()

    def score(of: Estimate) -> Score:
        known = several and not np.isnan(of.value)
        return Score(float(of.value), tuple(of.interval().tolist()) if known else None)

    places = []
    for name, mean in means.items():
        drop, share = None, None
        if not name.startswith('boundary'):
            share = float(100 * total[f'{name}/true'].sum() / pixels)
        if name.startswith('band'):
            drop = Estimate(
                lost(everywhere.value, mean.value), lost(everywhere.samples, mean.samples)
            )
        places.append(
            Place(name, share, score(mean), found.get(f'{name}/aAcc'), drop and score(drop))
        )
    return places


def lost(everywhere: np.ndarray, near: np.ndarray) -> np.ndarray:
    """By what share of itself a score is larger than another, per cent; NaN of nothing."""
    nothing = np.full(np.shape(everywhere), np.nan)
    return 100 * (1 - np.divide(near, everywhere, out=nothing, where=np.not_equal(everywhere, 0)))


def error_share(everywhere: Place, near: Place) -> float:
    """How many of the wrong pixels are in a band, per cent; NaN where none is wrong."""
    wrong = 100 - everywhere.accuracy
    return near.share * (100 - near.accuracy) / wrong if wrong else np.nan


def class_rows(counted: ImageSums, band: str | None) -> list[ClassRow]:
    """Of each class that occurs, those with most pixels first."""
    total = counted.total()
    of_classes = {
        name.rpartition('/')[0]: values
        for name, values in class_scores(total).items()
        if not name.endswith('/Acc')
    }
    images = (counted.counts['all/true'] > 0).sum(0)
    pixels = total['all/true']
    rows = []
    for k in np.argsort(-pixels, kind='stable'):
        found = {place: float(values[k]) for place, values in of_classes.items()}
        if np.isnan(found['all']):
            continue
        near = found[band] if band else np.nan
        gap = float(lost(found['all'], near))
        share = float(100 * pixels[k] / pixels.sum())
        rows.append(ClassRow(counted.classes[k], int(images[k]), share, found, gap))
    return rows


def image_scores(counted: ImageSums, place: str) -> np.ndarray:
    """The mean over the classes of each image by itself, (N,); NaN where there is none."""
    counts = {name: counted.counts[name] for name in counted.counts if _is_at(name, place)}
    of_classes = class_scores(counts)[f'{place}/IoU']
    return Estimate(of_classes, of_classes).over_classes().value


def _is_at(name: str, place: str) -> bool:
    return name.rpartition('/')[0] == place


def choose_images(of_images: np.ndarray, number: int) -> tuple[list[int], list[int]]:
    """Indices of the worst and of the best, both from the end; none is in both.

    Args:
        of_images: scores (N,), NaN for those that have none.
        number: of images, at most, of each kind.
    """
    order = np.argsort(of_images, kind='stable')[: np.count_nonzero(~np.isnan(of_images))]
    worst = order[:number]
    best = order[len(worst) :][::-1][:number]
    return worst.tolist(), best.tolist()
