import numpy as np
import pytest
from test_reporting.runs import sums

from mmbixt.evaluation import scores
from mmbixt.reporting.figures import (
    band_width,
    bands_of,
    choose_band,
    choose_images,
    class_rows,
    error_share,
    image_scores,
    place_scores,
    words,
)

CLASSES = ['sky', 'sea', 'never', 'only predicted']


@pytest.fixture
def pairs():
    """Images of two halves whose boundary is predicted some columns further right."""
    truth = np.zeros((20, 40), np.uint8)
    truth[:, 20:] = 1
    found = []
    for shift in (0, 2, 6, 4):
        prediction = np.zeros_like(truth)
        prediction[:, 20 + shift :] = 1
        found.append((truth, prediction))
    found[0][1][0, 0] = 3
    return found


@pytest.fixture
def counted(pairs):
    return sums(CLASSES, *pairs, widths=(1, 3), ratios=(0.1,), tolerances=(2,))


def test_places_have_the_scores_of_the_evaluation(counted):
    found = scores(counted.total())
    places = {place.name: place for place in place_scores(counted)}
    assert list(places) == ['all', 'band1px', 'band3px', 'boundary0.1', 'boundaryF2px']
    for name, place in places.items():
        mean = found.get(f'{name}/mIoU', found.get(f'{name}/mF'))
        assert place.mean.value == pytest.approx(mean)
        low, high = place.mean.interval
        assert low <= mean <= high
    assert places['band3px'].gap.value == pytest.approx(found['band3px/gap'])
    assert places['band3px'].accuracy == pytest.approx(found['band3px/aAcc'])
    assert places['band3px'].share == pytest.approx(100 * 6 / 40)
    assert places['all'].gap is None
    assert places['boundary0.1'].share is None


def test_one_image_has_no_interval(pairs):
    places = place_scores(sums(CLASSES, pairs[1]))
    assert all(place.mean.interval is None for place in places)


def test_share_of_errors(pairs):
    everywhere, _, near = place_scores(sums(CLASSES, pairs[2], widths=(1, 3), ratios=()))
    assert error_share(everywhere, near) == pytest.approx(50)  # 3 of 6 columns
    everywhere, near = place_scores(sums(CLASSES, (pairs[0][0],) * 2, widths=(3,), ratios=()))
    assert np.isnan(error_share(everywhere, near))


def test_rows_are_of_classes_that_occur(counted):
    rows = class_rows(counted, 'band3px')
    assert [(row.name, row.images) for row in rows] == [
        ('sky', 4),
        ('sea', 4),
        ('only predicted', 0),
    ]
    sky = rows[0]
    assert sky.share == pytest.approx(50)
    assert sky.gap == pytest.approx(100 * (1 - sky.scores['band3px'] / sky.scores['all']))
    assert rows[2].scores['all'] == 0
    assert np.isnan(rows[2].gap)
    assert np.isnan(class_rows(counted, None)[0].gap)


def test_score_of_an_image_is_that_of_its_own_counts(counted, pairs):
    found = image_scores(counted, 'band3px')
    for value, pair in zip(found, pairs, strict=True):
        assert value == pytest.approx(scores(sums(CLASSES, pair).total())['band3px/mIoU'])


def test_worst_and_best_images():
    of_images = np.array([50.0, np.nan, 10.0, 90.0, 30.0])
    assert choose_images(of_images, 1) == ([2], [3])
    assert choose_images(of_images, 2) == ([2, 4], [3, 0])
    assert choose_images(of_images, 3) == ([2, 4, 0], [3])
    assert choose_images(of_images, 9) == ([2, 4, 0, 3], [])
    assert choose_images(np.full(3, np.nan), 2) == ([], [])


def test_bands(counted):
    assert bands_of(counted) == ['band1px', 'band3px']
    assert choose_band(['band1px', 'band3px']) == 'band3px'
    assert choose_band(['band1px', 'band0.02']) == 'band1px'
    assert choose_band([]) is None
    assert [band_width(name) for name in ('band3px', 'band0.02')] == [3, 0.02]


@pytest.mark.parametrize(
    ('place', 'text'),
    [
        ('all', 'All pixels'),
        ('band3px', 'Band of 3 px'),
        ('band0.02', 'Band of 2 % of the diagonal'),
        ('boundary0.005', 'Boundary IoU, 0.5 % of the diagonal'),
        ('boundaryF2.5px', 'Boundary F, 2.5 px'),
    ],
)
def test_words(place, text):
    assert words(place).replace('\xa0', ' ') == text
