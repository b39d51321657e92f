import os
import pickle

import numpy as np
import pytest

from mmbixt.evaluation.sums import ImageSums, SumsFileError, find_sums, read_sums, write_sums

IMAGES, CLASSES = ['a/1', 'a/2', 'b'], ['sky', 'sea of trees']


@pytest.fixture
def counts():
    rng = np.random.default_rng(0)
    return {
        name: rng.integers(0, 2**32, (3, 2), np.uint32) for name in ('all/true', 'band1px/true')
    }


def test_what_is_written_is_read(counts, tmp_path):
    write_sums(tmp_path / 'new/boundary.npz', IMAGES, CLASSES, counts)
    found = read_sums(tmp_path / 'new/boundary.npz')
    np.testing.assert_equal(vars(found), dict(images=IMAGES, classes=CLASSES, counts=counts))


def test_totals_do_not_overflow():
    counts = {'all/true': np.full((3, 2), 2**32 - 1, np.uint32)}
    assert ImageSums(IMAGES, CLASSES, counts).total()['all/true'].tolist() == [3 * 2**32 - 3] * 2


def overwrite(path, counts):
    write_sums(path, IMAGES, CLASSES, counts)
    content = bytearray(path.read_bytes())
    content[60:70] = b'0123456789'
    path.write_bytes(content)


def cut_off(path, counts):
    write_sums(path, IMAGES, CLASSES, counts)
    path.write_bytes(path.read_bytes()[:-300])


SPOIL = {
    'text': lambda path, _: path.write_text('nothing of the kind'),
    'empty': lambda path, _: path.touch(),
    'pickle': lambda path, counts: path.write_bytes(pickle.dumps(counts)),
    'one array': lambda path, counts: np.save(path.open('wb'), counts['all/true']),
    'other arrays': lambda path, counts: np.savez(path, weights=counts['all/true']),
    'no counts': lambda path, _: write_sums(path, IMAGES, CLASSES, {}),
    'other shape': lambda path, counts: write_sums(path, IMAGES[:2], CLASSES, counts),
    'truncated': cut_off,
    'overwritten': overwrite,
}


@pytest.mark.parametrize('how', SPOIL)
def test_other_files_are_named(how, counts, tmp_path):
    path = tmp_path / 'boundary.npz'
    SPOIL[how](path, counts)
    with pytest.raises(SumsFileError, match=r'boundary\.npz is not a file of counts .* --sums'):
        read_sums(path)


def test_nothing_in_a_file_is_executed(tmp_path):
    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / 'harm'),)

    path = tmp_path / 'boundary.npz'
    np.savez(path, images=np.array([Harm()]), classes=np.array(CLASSES))
    with pytest.raises(SumsFileError):
        read_sums(path)
    assert not (tmp_path / 'harm').exists()


def test_where_a_file_is_found(counts, tmp_path):
    for folder, time in (('run/old', 1), ('run/new', 3), ('run/middle', 2), ('other', 4)):
        path = tmp_path / folder / 'boundary.npz'
        write_sums(path, IMAGES, CLASSES, counts)
        os.utime(path, (time, time))
    new = tmp_path / 'run/new/boundary.npz'
    assert find_sums(new) == new
    assert find_sums(tmp_path / 'run') == new
    write_sums(tmp_path / 'run/boundary.npz', IMAGES, CLASSES, counts)
    os.utime(tmp_path / 'run/boundary.npz', (0, 0))
    assert find_sums(tmp_path / 'run') == tmp_path / 'run/boundary.npz'


def test_where_none_is_found(tmp_path):
    with pytest.raises(SumsFileError, match=r'no boundary\.npz in .* or below\. Make it: tools'):
        find_sums(tmp_path)
    with pytest.raises(SumsFileError, match=r'no file and no folder .*nowhere'):
        find_sums(tmp_path / 'nowhere')


def test_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    def write_until_full(path, **_):
        path.write_bytes(b'half of')
        raise OSError(28, 'No space left on device')

    file = tmp_path / 'boundary.npz'
    file.write_text('old')
    monkeypatch.setattr(np, 'savez_compressed', write_until_full)
    with pytest.raises(OSError, match='No space'):
        write_sums(file, [], [], {})
    assert [path.read_text() for path in tmp_path.iterdir()] == ['old']
