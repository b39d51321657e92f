import numpy as np
import pytest
from label_maps import label_maps
from PIL import Image

from mmbixt.errors import UserError
from mmbixt.evaluation import image_sums
from mmbixt.evaluation.folders import Pair, Reading, find_images, pair_files, pair_sums

OPTIONS = dict(widths=(1, 0.1), ratios=(0.1,), tolerances=(2,))


def save(path, labels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(labels, np.uint8)).save(path)
    return path


@pytest.fixture
def make_pair(tmp_path):
    return lambda prediction, truth: Pair(
        'one', save(tmp_path / 'p.png', prediction), save(tmp_path / 'g.png', truth)
    )


def make_folders(root, predictions, truths):
    """A folder of predictions and one of truths with files of these names."""
    for folder, names in (('p', predictions), ('g', truths)):
        for name in names:
            save(root / folder / name, [[0]])
    return root / 'p', root / 'g'


@pytest.mark.parametrize(
    ('reduce_truth', 'ignored'), [(True, 255), (True, 0), (True, 3), (False, 9)]
)
def test_labels_from_1_and_another_ignore_index(reduce_truth, ignored, make_pair):
    truth, prediction = next(label_maps())
    if ignored == 3:
        truth = np.where(truth == 2, 255, truth)  # label 2 is written as 3
    reduce_prediction = not reduce_truth
    written = np.where(truth == 255, ignored, truth + reduce_truth)
    if reduce_truth:
        written[:2][truth[:2] == 255] = 0  # 0 is ignored, too
    pair = make_pair(prediction + reduce_prediction, written)
    counts = pair_sums(pair, 4, Reading(ignored, reduce_truth, reduce_prediction), OPTIONS)
    np.testing.assert_equal(counts, image_sums(truth, prediction, 4, **OPTIONS))


def test_one_side_without_subfolders(tmp_path):
    """As cities have them in Cityscapes, and the files of tools/test.py --out do not."""
    where = make_folders(tmp_path, ['1.png', '2.png'], ['a/1.png', 'b/2.png'])
    assert [pair.truth.parent.name for pair in pair_files(*where)] == ['a', 'b']
    assert find_images(where[1], '.png', ['1', '2']) == [where[1] / 'a/1.png', where[1] / 'b/2.png']


def test_missing_and_extra_files_are_named(tmp_path):
    where = make_folders(tmp_path, ['1.png', '3.png'], ['1.png', '2.png'])
    with pytest.raises(UserError, match=r'2 and 2 files, of which 2 are in one of them only'):
        pair_files(*where)


@pytest.mark.parametrize(
    ('prediction', 'truth', 'reading', 'message'),
    [
        ([[0, 1]], [[0, 4]], Reading(), 'truth has label 4, but with 4 classes labels are 0 to 3'),
        ([[0, 1]], [[0, 1]], Reading(reduce_prediction=True), 'prediction has label -1'),
    ],
)
def test_wrong_labels_are_named(prediction, truth, reading, message, make_pair):
    with pytest.raises(UserError, match=rf'(?s){message}.*g\.png\n.*p\.png\n.*--reduce-zero-label'):
        pair_sums(make_pair(prediction, truth), 4, reading, OPTIONS)
