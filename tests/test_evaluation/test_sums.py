import os
import pickle

import numpy as np
import pytest
from test_checkpoints.layouts import Calls

from mmbixt.errors import UserError
from mmbixt.evaluation.sums import ImageSums, indices_of, read_sums, unique_names, write_sums

IMAGES, CLASSES = ['a/1', 'a/2', 'b'], ['sky', 'sea of trees']
HARM = np.array([Calls(os.mkdir, 'harm')])
COUNTS = {
    name: np.random.default_rng(0).integers(0, 2**32, (3, 2), np.uint32)
    for name in ('all/true', 'band1px/true')
}


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A file in a new folder of the current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / 'new/boundary.npz'


def test_written_counts_are_read_and_summed(path):
    write_sums(path, ImageSums(IMAGES, CLASSES, COUNTS))
    np.testing.assert_equal(
        vars(read_sums(path)), dict(images=IMAGES, classes=CLASSES, counts=COUNTS)
    )
    large = ImageSums(IMAGES, CLASSES, {'all/true': np.full((3, 2), 2**32 - 1, np.uint32)})
    assert large.total()['all/true'].tolist() == [3 * 2**32 - 3] * 2


@pytest.mark.parametrize(
    'spoil',
    [
        lambda path, whole: path.write_bytes(pickle.dumps(COUNTS)),
        lambda path, whole: path.write_bytes(whole[:60] + b'0123456789' + whole[70:]),
        lambda path, whole: np.savez(path, images=HARM, classes=np.array(CLASSES)),
        lambda path, whole: write_sums(path, ImageSums(IMAGES[:2], CLASSES, COUNTS)),
    ],
)
def test_other_files_are_named_and_nothing_in_them_is_executed(spoil, path):
    write_sums(path, ImageSums(IMAGES, CLASSES, COUNTS))
    spoil(path, path.read_bytes())
    with pytest.raises(UserError, match=r'boundary\.npz is not a file of counts'):
        read_sums(path)
    assert os.listdir() == ['new']


def test_images_of_one_name_in_several_folders():
    paths = ['a/1.jpg', 'b/1.jpg', 'b/2.jpg']
    assert indices_of(['1.jpg', '2.jpg', '1.jpg'], paths) == [0, 2, 1]
    assert unique_names(paths) == ['a_1.jpg', 'b_1.jpg', 'b_2.jpg']
