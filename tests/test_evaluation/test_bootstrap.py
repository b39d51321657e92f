from dataclasses import replace

import numpy as np
import pytest

from mmbixt.errors import UserError
from mmbixt.evaluation import class_scores, scores
from mmbixt.evaluation.bootstrap import Estimate, draw_weights, estimate, paired
from mmbixt.evaluation.sums import ImageSums


def make_run(quality, images=40, classes=4, seed=0):
    """Counts over all pixels and in a band, with a fraction ``quality`` of correct predictions;
    class 3 is rare and the last class never occurs."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 1000, (images, classes + 1))
    true[2:, 3] = 0
    true[:, classes] = 0
    rng = np.random.default_rng(seed + 1)
    counts = {}
    for where, total, share in (('all', true, quality), ('band1px', true // 9, quality / 2)):
        right = rng.binomial(total, share)
        wrong = rng.permuted(total - right, axis=1)
        wrong[:, classes] = wrong[2:, 3] = 0
        counts |= {f'{where}/intersect': right, f'{where}/true': total}
        counts[f'{where}/predicted'] = right + wrong
    names = [f'image_{i}' for i in range(images)]
    return ImageSums(names, [f'class {k}' for k in range(classes + 1)], counts)


def part(run, chosen):
    counts = {name: c[chosen] for name, c in run.counts.items()}
    return ImageSums([run.images[i] for i in chosen], run.classes, counts)


def test_draws_are_scored_as_a_set_of_their_images():
    run = make_run(0.7)
    weights = draw_weights(40, 20, 0)
    found = estimate(run, weights)
    for s, row in enumerate(weights):
        total = part(run, np.repeat(np.arange(40), row.astype(int))).total()
        for name, values in class_scores(total).items():
            np.testing.assert_allclose(found[name].draws[s], values, rtol=1e-12)
        for where in ('all', 'band1px'):
            mean = found[f'{where}/IoU'].over_classes()
            assert mean.draws[s] == pytest.approx(scores(total)[f'{where}/mIoU'])
            assert mean.value == pytest.approx(scores(run.total())[f'{where}/mIoU'])
    assert np.isnan(found['all/IoU'].draws[:, 3]).any()  # class 3 is missing in some draws


def test_interval_of_the_mean_of_independent_images():
    """The accuracy of images of equal size is a mean, and the error of a mean is known."""
    rng = np.random.default_rng(0)
    right = rng.integers(0, 1001, (400, 1))
    true = np.full_like(right, 1000)
    counts = {'all/intersect': right, 'all/predicted': true, 'all/true': true}
    run = ImageSums(list(map(str, range(400))), ['one'], counts)
    low, high = estimate(run, draw_weights(400, 4000, 0))['all/Acc'].interval()
    error = right.std() / 10 / np.sqrt(400)
    np.testing.assert_allclose((high - low) / 2, 1.96 * error, rtol=0.05)
    np.testing.assert_allclose((high + low) / 2, right.mean() / 10, atol=0.1 * error)
    # a class that is missing in one draw, or in all of them
    nan = np.nan
    one = Estimate(np.array([1.0, nan]), np.array([[0.0, nan], [2.0, nan], [nan, nan]]))
    np.testing.assert_allclose(one.interval(), [[0.05, nan], [1.95, nan]])


def test_images_may_have_other_names_and_another_order():
    run, order = make_run(0.7), np.random.default_rng(0).permutation(40)
    other = part(make_run(0.8), order)
    names = [f'val/{name}_leftImg8bit.png' for name in other.images]
    first, second = paired(run, replace(other, images=names))
    assert second.images == [f'val/{name}_leftImg8bit.png' for name in first.images]
    back = [run.images.index(image) for image in first.images]
    np.testing.assert_equal(first.counts, part(run, back).counts)
    np.testing.assert_equal(second.counts, part(make_run(0.8), back).counts)


def test_runs_on_other_truths_are_refused():
    run, other = make_run(0.7), make_run(0.7)
    other.counts['all/true'][7, 0] += 1
    with pytest.raises(UserError, match=r'of 1 of 40 .* of image_7'):
        paired(run, other)
