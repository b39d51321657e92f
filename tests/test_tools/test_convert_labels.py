"""tools/convert_labels.py: colours and ids become label maps; what is no class is listed."""

import numpy as np
import pytest
from PIL import Image

from mmbixt.evaluation.folders import read_class_file, read_labels

COLOURS = [(128, 128, 128), (128, 0, 0), (0, 60, 100), (9, 9, 9)]  # the last one is no class
NAMES = ['sky', 'traffic light', 'car']


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A file of classes with colours and a byte order mark, and one without."""
    monkeypatch.chdir(tmp_path)
    lines = [f'{name} {" ".join(map(str, c))}' for name, c in zip(NAMES, COLOURS, strict=False)]
    (tmp_path / 'colours.txt').write_text('\n'.join(lines), encoding='utf-8-sig')
    (tmp_path / 'names.txt').write_text('\n'.join(NAMES))
    return tmp_path


@pytest.fixture
def ids():
    return np.random.default_rng(0).integers(0, 4, (20, 30), np.uint8)


def write(pixels, name, folder, **options):
    (folder / 'old/town').mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(folder / 'old/town' / name, **options)


def test_colours(folder, ids, within):
    pixels = np.uint8(COLOURS)[ids]
    write(pixels, 'a.png', folder)
    write(np.dstack([pixels, ids]), 'b.tif', folder)  # with transparency
    done = within('convert_labels.py', 'old', 'new', '--classes', 'colours.txt')
    text = f'  9 9 9: {2 * (ids == 3).sum()} pixels in 2 files, first in old/town/a.png'
    assert text in done.stdout
    for name in 'ab':
        labels = read_labels(folder / f'new/town/{name}.png')
        assert np.array_equal(labels, np.where(ids == 3, 255, ids))
    assert read_class_file('colours.txt') == (NAMES, COLOURS[:3])


@pytest.mark.parametrize('ignored', [['3'], ['7', '3'], [], ['1', '3']])
def test_ids(folder, ids, within, ignored):
    write(ids, 'a.png', folder)
    ignore = ['--ignore', *ignored] if ignored else []
    done = within('convert_labels.py', 'old', 'new', '--classes', 'names.txt', *ignore)
    assert ('  id 3: ' in done.stdout) is not bool(ignored)
    expected = np.where((ids == 3) | np.isin(ids, np.uint8(ignored)), 255, ids)  # also a class
    assert np.array_equal(read_labels(folder / 'new/town/a.png'), expected)


def test_colours_of_a_jpeg_file_are_refused(folder, ids, within):
    write(np.uint8(COLOURS)[ids], 'a.jpg', folder)
    done = within('convert_labels.py', 'old', 'new', '--classes', 'colours.txt', fails=True)
    assert 'a.jpg is a JPEG file, whose colours are not exact' in done.stderr
