import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mmbixt.evaluation.sums import (
    ImageSums,
    OtherImagesError,
    SumsFileError,
    find_sums,
    indices_of,
    read_sums,
    unique_names,
    write_sums,
)
from mmbixt.files import written_whole

IMAGES, CLASSES = ['a/1', 'a/2', 'b'], ['sky', 'sea of trees']
COUNTS = {
    name: np.random.default_rng(0).integers(0, 2**32, (3, 2), np.uint32)
    for name in ('all/true', 'band1px/true')
}


class Harm:
    def __reduce__(self):
        return os.mkdir, ('harm',)


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A file in a new folder of the current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / 'new/boundary.npz'


def test_written_counts_are_read_and_summed(path):
    write_sums(path, IMAGES, CLASSES, COUNTS)
    np.testing.assert_equal(
        vars(read_sums(path)), dict(images=IMAGES, classes=CLASSES, counts=COUNTS)
    )
    large = ImageSums(IMAGES, CLASSES, {'all/true': np.full((3, 2), 2**32 - 1, np.uint32)})
    assert large.total()['all/true'].tolist() == [3 * 2**32 - 3] * 2


@pytest.mark.parametrize(
    'spoil',
    [
        lambda path, whole: path.write_bytes(b''),
        lambda path, whole: path.write_bytes(pickle.dumps(COUNTS)),
        lambda path, whole: path.write_bytes(whole[:60] + b'0123456789' + whole[70:]),
        lambda path, whole: np.save(path.open('wb'), COUNTS['all/true']),
        lambda path, whole: np.savez(path, images=np.array([Harm()]), classes=np.array(CLASSES)),
        lambda path, whole: write_sums(path, IMAGES[:2], CLASSES, COUNTS),
    ],
)
def test_other_files_are_named_and_nothing_in_them_is_executed(spoil, path):
    write_sums(path, IMAGES, CLASSES, COUNTS)
    spoil(path, path.read_bytes())
    with pytest.raises(SumsFileError, match=r'boundary\.npz is not a file of counts .* --sums'):
        read_sums(path)
    assert os.listdir() == ['new']


def test_find_sums(tmp_path):
    for folder, time in (('run/old', 1), ('run/new', 3), ('run/middle', 2), ('other', 4)):
        path = tmp_path / folder / 'boundary.npz'
        write_sums(path, IMAGES, CLASSES, COUNTS)
        os.utime(path, (time, time))
    new, direct = tmp_path / 'run/new/boundary.npz', tmp_path / 'run/boundary.npz'
    assert find_sums(new) == find_sums(tmp_path / 'run') == new
    write_sums(direct, IMAGES, CLASSES, COUNTS)
    os.utime(direct, (0, 0))
    assert find_sums(tmp_path / 'run') == direct


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


def test_links_and_pipes_stay_what_they_are(tmp_path):
    target, link, pipe = (tmp_path / name for name in ('target', 'link', 'pipe'))
    target.write_text('old')
    link.symlink_to('target')
    with written_whole(link) as part:
        part.write_text('new')
    assert link.is_symlink()
    assert target.read_text() == 'new'
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text)
        with written_whole(pipe) as part:
            part.write_text('all')
        assert read.result() == 'all'
    assert pipe.is_fifo()


def test_a_file_keeps_its_mode_and_two_writers_write_it_whole(tmp_path):
    path = tmp_path / ('n' * 250)
    path.touch(0o600)
    with written_whole(path) as first:
        first.write_text('one')
        with written_whole(path) as second:
            second.write_text('two')
        assert path.read_text() == 'two'
    assert path.read_text() == 'one'
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == [path.name]


def test_what_goes_to_stdout_follows_what_was_printed(tmp_path):
    code = (
        "print('before'); from mmbixt.files import written_whole\n"
        "with written_whole('/dev/stdout') as part: part.write_text('text\\n')\n"
        "print('after')"
    )
    with open(tmp_path / 'log', 'w') as log:
        subprocess.run([sys.executable, '-c', code], stdout=log, check=True)
    assert (tmp_path / 'log').read_text() == 'before\ntext\nafter\n'


def test_images_of_one_name_in_several_folders():
    paths = ['a/1.jpg', 'b/1.jpg', 'b/2.jpg']
    assert indices_of(['1.jpg', '2.jpg', '1.jpg'], paths) == [0, 2, 1]
    assert unique_names(paths) == ['a_1.jpg', 'b_1.jpg', 'b_2.jpg']
    assert unique_names(paths[1:]) == ['1', '2']
    assert unique_names(['/a/1.jpg', '/a/1.png']) == ['1.jpg', '1.png']
    assert unique_names(['/a/1.jpg'] * 2) == ['1', '1']  # it is the same image
    assert indices_of(['a.b', '2.c.jpg'], ['d/2.c.png', 'd/a.b.png']) == [1, 0]
    for images in (['3.jpg'], ['2', '2'], ['2', '1', 'a.b']):
        with pytest.raises(OtherImagesError, match=f'{images[-1]}, for example, is not one of'):
            indices_of(images, paths)
