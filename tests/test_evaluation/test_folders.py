import struct
import sys
import zlib

import numpy as np
import pytest
from label_maps import label_maps
from PIL import Image

from mmbixt.evaluation import folders, image_sums
from mmbixt.evaluation.folders import (
    LabelFilesError,
    Pair,
    Reading,
    check_pairs,
    folder_sums,
    pair_files,
    pair_sums,
    read_classes,
    read_labels,
)

OPTIONS = dict(widths=(1, 0.1), ratios=(0.1,), tolerances=(2,))


def save(path, labels):
    Image.fromarray(np.asarray(labels, np.uint8)).save(path)
    return path


@pytest.fixture
def make_pair(tmp_path):
    return lambda prediction, truth: Pair(
        'one', save(tmp_path / 'p.png', prediction), save(tmp_path / 'g.png', truth)
    )


@pytest.fixture
def both(tmp_path):
    """Creates folders of predictions and of truths with files of these names."""

    def both(predictions, truths):
        for folder, names in (('p', predictions), ('g', truths)):
            for name in names:
                save(tmp_path / 'new.png', [[0]]).rename(tmp_path / folder / name)
        return tmp_path / 'p', tmp_path / 'g'

    for folder in ('p/a', 'p/b', 'p/.cache', 'g/a', 'g/b', 'g/.cache'):
        (tmp_path / folder).mkdir(parents=True)
    return both


def raises(message):
    return pytest.raises(LabelFilesError, match=message)


def test_errors_in_one_process_do_not_block_the_others(tmp_path, make_pair, monkeypatch):
    bad, good = (save(tmp_path / f'{k}.png', np.full((60, 60), k)) for k in (9, 1))
    paths = [bad if i % 20 == 13 else good for i in range(60)]
    with raises('has label 9'):
        folder_sums([Pair('', path, path) for path in paths], ['a', 'b'], Reading(), {}, 4)
    # in forked processes, which inherit the patch, as well
    monkeypatch.setattr(folders, 'image_sums', lambda *_, **__: np.empty(2**60, np.uint8))
    with raises(r'^Out of memory, after 0 of 3 images: try fewer --jobs \(now 2\)'):
        folder_sums([make_pair([[0]], [[0]])] * 3, ['a'], Reading(), {}, 2)


@pytest.mark.parametrize(('reduce_truth', 'ignored'), [(True, 255), (False, 9)])
def test_labels_from_1_and_another_ignore_index(reduce_truth, ignored, make_pair):
    truth, prediction = next(label_maps())
    reduce_prediction = not reduce_truth
    written = np.where(truth == 255, ignored, truth + reduce_truth)
    if reduce_truth:
        written[:2][truth[:2] == 255] = 0  # 0 and 255 are both ignored
    pair = make_pair(prediction + reduce_prediction, written)
    found = pair_sums(pair, 4, Reading(ignored, reduce_truth, reduce_prediction), OPTIONS)
    np.testing.assert_equal(found, image_sums(truth, prediction, 4, **OPTIONS))


def test_names_with_prefix_and_suffix_and_files_without_them(both):
    names = ['a/x_1_p.png', 'b/x_1_p.png', 'a/overlay_1_p.png', 'a/x_1.png', '.cache/x_2_p.png']
    where = both(names, ['a/1.png', 'b/1.png', 'a/.1.png', '.cache/1.png', 'a/1.txt'])
    options = dict(pred_suffix='_p.png', pred_prefix='x_')
    pairs = pair_files(*where, **options)
    assert pairs[1] == Pair('b/1', where[0] / 'b/x_1_p.png', where[1] / 'b/1.png')
    assert [pair.name for pair in pairs] == ['a/1', 'b/1']
    moved = (where[0] / 'b').rename(where[0].parent / 'moved')
    (where[0] / 'b').symlink_to(moved)
    for name in ('loop', 'again'):
        (moved / name).symlink_to(where[0])
    assert pair_files(*where, **options) == pairs  # links are followed
    pairs[1].prediction.unlink()
    with raises(r'there should be\n  b/x_1_p\.png\n.*--pred-prefix \(now x_\)'):
        pair_files(*where, **options)


def test_missing_and_extra_files_are_named(both):
    where = both(['x8.png'], [f'x{i}.png' for i in range(9)])
    with raises(r'(?s)^8 of 9 truths in .*\n  x0\.png\n.*  x4\.png\n  \.\.\. and 3 more\n'):
        pair_files(*where)
    both([*(f'x{i}.png' for i in range(8)), 'y.png'], [])
    with raises(r'^1 of 10 predictions have no truth in .*:\n  .*p/y\.png\n'):
        pair_files(*where)


@pytest.mark.parametrize(
    ('spoil', 'message'),
    [
        (lambda path, _: Image.new('RGB', (40, 40)).save(path), 'is an image in mode RGB, but'),
        (lambda path, _: Image.new('L', (40, 40)).save(path, 'JPEG'), 'is a JPEG file; JPEG'),
        (lambda path, whole: path.write_bytes(whole[:-200]), 'cannot be read'),
        (lambda path, whole: path.write_bytes(whole[:80] + b'0' * 40 + whole[120:]), 'cannot be r'),
    ],
)
def test_files_that_are_not_labels_or_are_damaged_are_named(spoil, message, make_pair):
    labels = np.random.default_rng(0).integers(0, 4, (40, 40))
    pair = make_pair(labels, labels)
    whole = pair.prediction.read_bytes()
    spoil(pair.prediction, whole)
    if b'PNG' not in pair.prediction.read_bytes()[:4]:  # visible in the header
        with raises(rf'1 of 1 pairs .*\n.*p\.png {message}'):
            check_pairs([pair])
    with raises(rf'p\.png {message}'):
        pair_sums(pair, 4, Reading(), OPTIONS)


@pytest.mark.parametrize('bits', [1, 2, 4, 8, 16])
def test_grey_labels_of_few_and_of_many_bits(bits, tmp_path):
    labels = np.arange(2 ** min(bits, 4)) * (257 if bits == 16 else 1)
    packed = np.packbits(((labels[:, None] >> np.arange(bits)[::-1]) & 1).astype(np.uint8))
    chunks = {
        b'IHDR': struct.pack('>2I5B', len(labels), 1, bits, 0, 0, 0, 0),
        b'IDAT': zlib.compress(b'\0' + packed.tobytes()),
        b'IEND': b'',
    }
    with (tmp_path / 'p.png').open('wb') as file:
        file.write(b'\x89PNG\r\n\x1a\n')
        for name, data in chunks.items():
            file.write(struct.pack('>I', len(data)) + name + data)
            file.write(struct.pack('>I', zlib.crc32(name + data)))
    np.testing.assert_array_equal(read_labels(tmp_path / 'p.png'), labels[None])


def test_wrong_and_missing_labels_and_different_sizes(make_pair):
    for values, reading, message in (
        (([0, 1], [0, 4]), Reading(), 'truth has label 4, but with 4 classes labels are 0 to 3'),
        (([0, 1], [0, 1]), Reading(reduce_prediction=True), 'prediction has label -1'),
    ):
        with raises(rf'(?s){message}.*g\.png\n.*p\.png\n.*--reduce-zero-label'):
            pair_sums(make_pair(*([row] for row in values)), 4, reading, OPTIONS)
    with raises('Only the prediction has the label 255: are PRED_DIR and GT_DIR swapped'):
        pair_sums(make_pair([[0, 255]], [[0, 1]]), 4, Reading(), OPTIONS)
    with raises('All pixels of all 2 truths have the label 255.*nothing to score'):
        folder_sums([make_pair([[1]], [[255]])] * 2, list('ab'), Reading(), OPTIONS)
    with raises(r'1 of 1 pairs .*\n.*p\.png is 3 x 5 pixels, but .*g\.png 6 x 4 \(height x width'):
        check_pairs([make_pair(np.zeros((3, 5)), np.zeros((6, 4)))])


def test_names_of_classes(tmp_path, monkeypatch):
    path = tmp_path / 'classes.txt'
    path.write_text('sky\nsea of trees \nsand\n\n')
    assert read_classes(str(path)) == ['sky', 'sea of trees', 'sand']
    assert read_classes('ade20k')[:2] == ['wall', 'building']
    with raises('There is no file ade200k with a class name'):
        read_classes('ade200k')
    monkeypatch.setitem(sys.modules, 'mmseg', None)
    with raises('which is not installed: `pip install mmsegmentation'):
        read_classes('ade20k')
