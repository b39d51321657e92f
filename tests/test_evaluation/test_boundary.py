from collections import defaultdict

import numpy as np
import pytest
import torch
from mmseg.evaluation import IoUMetric

from mmbixt.evaluation import class_scores, image_sums, scores

WIDTHS = (5, 1, 2, 0.1)  # not sorted
RATIOS = (0.2, 0.05)
TOLERANCES = (0.5, 1, 3, 5)


def sums_by_definition(truth, prediction, num_classes, ignore_index=255):
    """Reference: the same counts, for each class, from distances between all pairs of pixels."""
    height, width = truth.shape
    rows, columns = (axis.ravel() for axis in np.mgrid[:height, :width])
    apart = np.stack((rows[:, None] - rows, columns[:, None] - columns))
    steps, metres = abs(apart).max(0), np.hypot(*apart)
    to_frame = np.minimum.reduce((rows + 1, height - rows, columns + 1, width - columns))
    diagonal = np.sqrt(height**2 + width**2)
    truth, prediction = truth.ravel(), prediction.ravel()
    valid = truth != ignore_index
    sums = defaultdict(list)

    def beside_others(labels, distance):
        other = (labels[:, None] != labels) & valid
        return valid & ((steps <= distance) & other).any(1)

    def inner_band(labels, depth):
        return valid & (beside_others(labels, depth) | (to_frame <= depth))

    for k in range(num_classes):
        t, p = truth == k, prediction == k
        places = {'all': valid}
        for size in WIDTHS:
            pixels = size if size >= 1 else max(1, round(size * diagonal))
            places[f'band{size}px' if size >= 1 else f'band{size}'] = beside_others(truth, pixels)
        for name, place in places.items():
            sums[f'{name}/intersect'] += [(t & p & place).sum()]
            sums[f'{name}/predicted'] += [(p & place).sum()]
            sums[f'{name}/true'] += [(t & place).sum()]
        for ratio in RATIOS:
            depth = max(1, round(ratio * diagonal))
            t_band, p_band = t & inner_band(truth, depth), p & inner_band(prediction, depth)
            sums[f'boundary{ratio}/intersect'] += [(t_band & p_band).sum()]
            sums[f'boundary{ratio}/union'] += [(t_band | p_band).sum()]
        t_edge, p_edge = t & beside_others(truth, 1), p & beside_others(prediction, 1)
        for tolerance in TOLERANCES:
            name, near = f'boundaryF{tolerance}px', metres <= tolerance
            sums[f'{name}/predicted'] += [p_edge.sum()]
            sums[f'{name}/true'] += [t_edge.sum()]
            sums[f'{name}/matched_predicted'] += [near[p_edge][:, t_edge].any(1).sum()]
            sums[f'{name}/matched_true'] += [near[t_edge][:, p_edge].any(1).sum()]
    return sums


def blobs(rng, height, width, num_classes):
    """Labels in blocks, with some wrong pixels."""
    coarse = rng.integers(0, num_classes, (height // 5 + 1, width // 5 + 1))
    labels = coarse.repeat(5, 0).repeat(5, 1)[:height, :width]
    wrong = rng.random(labels.shape) < 0.05
    return np.where(wrong, rng.integers(0, num_classes, labels.shape), labels)


@pytest.mark.parametrize('size', [(1, 1), (1, 9), (8, 1), (3, 3), (17, 22), (20, 15)])
@pytest.mark.parametrize('ignored', [0, 0.02, 0.4, 1])
def test_random_label_maps_against_the_definition(size, ignored):
    for seed, label_at_ignored in enumerate((2, 255, -3)):
        rng = np.random.default_rng(seed)
        truth, prediction = (blobs(rng, *size, 4) for _ in range(2))
        prediction = np.where(rng.random(size) < 0.5, truth, prediction)
        truth[rng.random(size) < ignored] = 255
        prediction[truth == 255] = label_at_ignored  # must have no effect
        found = image_sums(truth, prediction, 5, WIDTHS, RATIOS, TOLERANCES)
        found = {name: counts.tolist() for name, counts in found.items()}
        assert found == sums_by_definition(truth, prediction, 5)


def test_shifted_square_by_hand():
    truth, prediction = np.zeros((2, 8, 8), int)
    truth[2:6, 2:6] = 1
    prediction[2:6, 3:7] = 1
    sums = image_sums(truth, prediction, 2, (1,), (0.02,), (0.5, 1))
    # the band of 1 px is a frame of 32 pixels (6 x 6 without 2 x 2), of which 24 are correct
    everywhere, band = (44 / 52 + 12 / 20) / 2, (16 / 24 + 8 / 16) / 2
    found = scores(sums)
    assert found['band1px/mIoU'] == pytest.approx(100 * band)
    assert found['band1px/gap'] == pytest.approx(100 * (everywhere - band) / everywhere)
    assert found['boundary0.02/mIoU'] == pytest.approx(100 * (38 / 52 + 6 / 18) / 2)
    assert (found['boundaryF0.5px/mF'], found['boundaryF1px/mF']) == (50, 100)


def test_class_in_one_label_map_only_scores_0_and_in_neither_nan():
    truth, prediction = np.zeros((2, 9, 9), int)
    truth[3:6, 3:6] = 1
    for maps in ((truth, prediction), (prediction, truth)):
        found = class_scores(image_sums(*maps, 3, (1,), (0.02,), (3,)))
        np.testing.assert_array_equal(found['boundaryF3px/F'], [0, 0, np.nan])
        np.testing.assert_array_equal(found['boundary0.02/IoU'][1:], [0, np.nan])
    prediction[0, 8] = 1  # in both, but too far away
    assert class_scores(image_sums(truth, prediction, 3, tolerances=(3,)))['boundaryF3px/F'][1] == 0


def test_all_and_bands_are_scored_as_mmseg_does():
    rng = np.random.default_rng(0)
    truth = rng.choice([0, 1, 2, 255], (6, 8), p=[0.4, 0.3, 0.2, 0.1]).repeat(5, 0).repeat(5, 1)
    prediction = np.where(rng.random(truth.shape) < 0.3, rng.choice([0, 1, 3], truth.shape), truth)
    prediction[truth == 2] = 0  # 2 is only in the truth, 3 only predicted, 4 in neither
    prediction[truth == 255] = 4
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(truth, 2, mode='edge'), (5, 5))
    others = (windows != truth[..., None, None]) & (windows != 255)
    band = np.where(others.any((2, 3)), truth, 255)
    sums = image_sums(truth, prediction, 5, (2,), ())
    ours, means = class_scores(sums), scores(sums)
    for where, shown in (('all', truth), ('band2px', band)):
        counts = IoUMetric.intersect_and_union(*map(torch.from_numpy, (prediction, shown)), 5, 255)
        theirs = IoUMetric.total_area_to_metrics(*counts)
        assert np.isnan(theirs['IoU']).tolist() == [False, False, False, False, True]
        assert theirs['IoU'][2] == theirs['IoU'][3] == 0
        assert np.isnan(theirs['Acc'][3])
        for name in ('IoU', 'Acc'):
            np.testing.assert_allclose(ours[f'{where}/{name}'], 100 * theirs[name], rtol=1e-6)
            assert means[f'{where}/m{name}'] == pytest.approx(100 * np.nanmean(theirs[name]))
        assert means[f'{where}/aAcc'] == pytest.approx(100 * theirs['aAcc'])


@pytest.mark.parametrize(
    ('num_classes', 'dtype', 'ignored'),
    [(256, np.uint8, -1), (255, np.int64, 999), (260, np.int64, -1)],
)
def test_labels_of_eight_bits_and_of_more(num_classes, dtype, ignored):
    rng = np.random.default_rng(0)
    values = np.array([0, 9, num_classes - 4, num_classes - 1], dtype)
    truth, prediction = (values[blobs(rng, 8, 9, 4)] for _ in range(2))
    if dtype != np.uint8:
        truth[rng.random(truth.shape) < 0.1] = ignored
    found = image_sums(truth, prediction, num_classes, WIDTHS, RATIOS, TOLERANCES, ignored)
    found = {name: counts.tolist() for name, counts in found.items()}
    assert found == sums_by_definition(truth, prediction, num_classes, ignored)


@pytest.mark.parametrize(('size', 'label'), [((3, 4), 255), ((1, 1), 1)])
def test_nothing_to_score_is_nan(size, label):
    """All scores without valid pixels; scores of bands and F without a boundary."""
    labels = np.full(size, label)
    sums = image_sums(labels, labels, 3, tolerances=(3,))
    found = scores(sums)
    scored = {name for name, score in found.items() if score == 100}
    anywhere = {'all/mIoU', 'all/mAcc', 'all/aAcc', 'boundary0.02/mIoU', 'boundary0.005/mIoU'}
    assert scored == (anywhere if label == 1 else set())
    assert all(np.isnan(found[name]) for name in set(found) - scored)
