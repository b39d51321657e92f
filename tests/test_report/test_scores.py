import numpy as np
import pytest
from test_report.runs import sums

from mmbixt.evaluation import scores
from mmbixt.evaluation.bootstrap import Estimate, score_regions
from mmbixt.report.scores import class_rows

CLASSES = ['sky', 'sea', 'never', 'only predicted']


def test_regions_have_the_scores_of_the_evaluation():
    """Of images of two halves, with the predicted boundary shifted to the right."""
    truth = np.zeros((20, 40), np.uint8)
    truth[:, 20:] = 1
    predictions = [np.roll(truth, shift, 1) * truth for shift in (0, 2, 6, 4)]
    predictions[0][0, 0] = 3
    pairs = [(truth, prediction) for prediction in predictions]
    counts = sums(CLASSES, *pairs, widths=(1, 3), ratios=(0.1,), tolerances=(2,))
    found = scores(counts.total())
    regions = score_regions(counts)
    assert list(regions) == ['all', 'band1px', 'band3px', 'boundary0.1', 'boundaryF2px']
    for name, region in regions.items():
        mean = found.get(f'{name}/mIoU', found.get(f'{name}/mF'))
        assert region.mean.value == pytest.approx(mean)
        low, high = region.mean.interval()
        assert low <= mean <= high
    assert regions['band3px'].gap.value == pytest.approx(found['band3px/gap'])
    assert regions['band3px'].accuracy == pytest.approx(found['band3px/aAcc'])
    assert regions['band3px'].share == pytest.approx(100 * 6 / 40)
    assert regions['all'].gap is None
    # rows of the classes that occur
    sky, sea, predicted = class_rows(counts, regions, 'band3px')
    assert sky[:2] + sea[:2] + predicted[:2] == ['sky', 4, 'sea', 4, 'only predicted', 0]
    _, _, share, whole, gap, _, band3px, *_ = sky
    assert share == pytest.approx(50)
    assert gap == pytest.approx(100 * (1 - band3px / whole))
    assert predicted[3] == 0
    assert np.isnan(predicted[4])
    # a class that is hardly found
    scarce = Estimate(np.array([50, 0.1, np.nan, 0]), np.empty((0, 4)))
    regions['all'] = regions['all']._replace(classes=scarce)
    assert [np.isnan(row[4]) for row in class_rows(counts, regions, 'band3px')] == [0, 1, 1]
