import struct
import sys
import zlib

import cv2
import numpy as np
import pytest
from label_maps import label_maps, stacked_sums
from PIL import Image

from mmbixt.evaluation import image_sums
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


def save(path, labels, mode=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(np.asarray(labels, np.uint16 if mode == 'I;16' else np.uint8))
    if mode == 'P':
        picture.putpalette(np.random.default_rng(0).integers(0, 256, 768).astype(np.uint8))
    picture.save(path)
    return path


def raises(message):
    return pytest.raises(LabelFilesError, match=message)


@pytest.mark.parametrize('jobs', [1, 3])
def test_counts_of_folders(jobs, tmp_path):
    for i, (truth, prediction) in enumerate(label_maps()):
        save(tmp_path / f'p/city/{i}.png', prediction, 'P')
        save(tmp_path / f'g/city/{i}_labels.png', truth)
        save(tmp_path / f'g/city/{i}_colours.png', truth)
    pairs = pair_files(tmp_path / 'p', tmp_path / 'g', '.png', '_labels.png')
    assert check_pairs(pairs) == (20, 30)
    done = []
    found = folder_sums(
        pairs, list('abcd'), Reading(), OPTIONS, jobs, on_image=lambda: done.append(1)
    )
    assert found.images == [f'city/{i}' for i in range(5)]
    assert found.classes == list('abcd')
    assert len(done) == 5
    np.testing.assert_equal(found.counts, stacked_sums(label_maps(), **OPTIONS))


def test_threads_of_opencv_do_not_block_the_processes(tmp_path):
    before = cv2.getNumThreads()
    cv2.setNumThreads(4)
    try:
        cv2.GaussianBlur(np.zeros((2000, 2000), np.float32), (31, 31), 0)  # starts them
        pair = make_pair(tmp_path, [[0, 1]], [[0, 1]])
        found = folder_sums([pair] * 9, list('ab'), Reading(), OPTIONS, 2)
        assert found.total()['all/intersect'].tolist() == [9, 9]
        assert cv2.getNumThreads() == 4
    finally:
        cv2.setNumThreads(before)


def test_errors_in_one_process_do_not_block_the_others(tmp_path):
    bad, good = (save(tmp_path / f'{k}.png', np.full((60, 60), k)) for k in (9, 1))
    paths = [bad if i % 20 == 13 else good for i in range(60)]
    pairs = [Pair(str(i), path, path) for i, path in enumerate(paths)]
    for _ in range(5):
        with raises('has label 9'):
            folder_sums(pairs, ['a', 'b'], Reading(), {}, 4)


@pytest.mark.parametrize(
    ('reduce_truth', 'reduce_prediction', 'ignored'), [(True, False, 255), (False, True, 9)]
)
def test_labels_that_start_at_one_and_another_ignored_label(
    reduce_truth, reduce_prediction, ignored, tmp_path
):
    truth, prediction = next(label_maps())
    written = np.where(truth == 255, ignored, truth + reduce_truth)
    if reduce_truth:
        written[:2][truth[:2] == 255] = 0  # 0 and 255 are both ignored
    pair = make_pair(tmp_path, prediction + reduce_prediction, written)
    found = pair_sums(pair, 4, Reading(ignored, reduce_truth, reduce_prediction), OPTIONS)
    np.testing.assert_equal(found, image_sums(truth, prediction, 4, **OPTIONS))


def test_labels_of_sixteen_bits(tmp_path):
    labels = np.arange(256).reshape(16, 16) * 257
    path = save(tmp_path / 'labels.png', labels, 'I;16')
    np.testing.assert_array_equal(read_labels(path), labels)


@pytest.mark.parametrize('flat', ['p', 'g'])
def test_folders_inside_one_of_the_two_are_ignored(flat, tmp_path):
    for folder in 'pg':
        for city, name in (('aachen', 'a_1'), ('ulm', 'u_1')):
            save(tmp_path / folder / ('' if folder == flat else city) / f'{name}.png', [[0]])
    pairs = pair_files(tmp_path / 'p', tmp_path / 'g')
    assert [pair.name for pair in pairs] == ['a_1', 'u_1']
    assert all(pair.prediction.name == pair.truth.name for pair in pairs)
    nested = 'g' if flat == 'p' else 'p'
    save(tmp_path / nested / 'bonn/a_1.png', [[0]])
    with raises(r'aachen/a_1\.png and .*bonn/a_1\.png have the same name'):
        pair_files(tmp_path / 'p', tmp_path / 'g')


def test_folders_inside_both_count(tmp_path):
    for name in ('a/1.png', 'b/1.png', 'a/.1.png', '.cache/1.png', 'a/1.txt'):
        for i, folder in enumerate('pg'):
            save(tmp_path / folder / f'{name}.png', [[i]])
            (tmp_path / folder / f'{name}.png').rename(tmp_path / folder / name)
    pairs = pair_files(tmp_path / 'p', tmp_path / 'g')
    assert [pair.name for pair in pairs] == ['a/1', 'b/1']
    assert pairs[1].prediction == tmp_path / 'p/b/1.png'
    assert pairs[1].truth == tmp_path / 'g/b/1.png'


def test_missing_and_extra_files_are_named(tmp_path):
    predictions, truths = tmp_path / 'p', tmp_path / 'g'
    with raises('There is no folder .*p'):
        pair_files(predictions, truths)
    for i in range(9):
        save(truths / f'x{i}.png', [[0]])
    save(predictions / 'x8.png', [[0]])
    with raises(r'ends with _p\.png; there is x8\.png, for example\. Say with --pred-suffix'):
        pair_files(predictions, truths, '_p.png')
    with raises(r'(?s)^8 of 9 truths in .*\n  x0\.png\n.*  x4\.png\n  \.\.\. and 3 more\n'):
        pair_files(predictions, truths)
    for name in (*(f'x{i}' for i in range(8)), 'y'):
        save(predictions / f'{name}.png', [[0]])
    with raises(r'^1 of 10 predictions have no truth in .*:\n  .*p/y\.png\n'):
        pair_files(predictions, truths)


def make_pair(tmp_path, prediction, truth):
    return Pair('one', save(tmp_path / 'p.png', prediction), save(tmp_path / 'g.png', truth))


def test_sizes_must_be_the_same(tmp_path):
    pair = make_pair(tmp_path, np.zeros((3, 5)), np.zeros((6, 4)))
    with raises(r'1 of 1 pairs .*\n.*p\.png is 3 x 5 pixels, but .*g\.png 6 x 4 \(height x width'):
        check_pairs([pair])


@pytest.mark.parametrize(('mode', 'format'), [('RGB', 'PNG'), ('L', 'JPEG')])
def test_pictures_that_are_not_labels(mode, format, tmp_path):
    pair = make_pair(tmp_path, [[0, 1]], [[0, 1]])
    Image.new(mode, (2, 1)).save(pair.prediction, format)
    message = 'JPEG file, which changes' if format == 'JPEG' else f'mode {mode}, but labels have'
    with raises(rf'p\.png is an? .*{message}.*: save'):
        check_pairs([pair])
    with raises(message):
        read_labels(pair.prediction)


@pytest.mark.parametrize('bits', [1, 2, 4, 8])
def test_grey_labels_of_few_bits(bits, tmp_path):
    labels = np.arange(2 ** min(bits, 4))
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


@pytest.mark.parametrize('how', ['text', 'cut off', 'overwritten'])
def test_broken_files_are_named(how, tmp_path):
    labels = np.random.default_rng(0).integers(0, 4, (40, 40))
    pair = make_pair(tmp_path, labels, labels)
    whole = pair.prediction.read_bytes()
    broken = {
        'text': b'not a picture',
        'cut off': whole[:-200],
        'overwritten': whole[:80] + b'\0' * 40 + whole[120:],
    }
    pair.prediction.write_bytes(broken[how])
    if how == 'text':  # which shows before any work is done
        with raises(r'1 of 1 pairs .*\n.*p\.png cannot be read .*: write it again'):
            check_pairs([pair])
    with raises(r'p\.png cannot be read'):
        pair_sums(pair, 4, Reading(), OPTIONS)


@pytest.mark.parametrize(
    ('prediction', 'truth', 'reading', 'message'),
    [
        ([[0, 1]], [[0, 4]], Reading(), r'truth has label 4, but with 4 classes labels are 0 to 3'),
        ([[0, 255]], [[0, 1]], Reading(), 'prediction has label 255'),
        ([[0, 1]], [[1, 5]], Reading(reduce_truth=True), 'truth has label 4'),
        ([[0, 1]], [[0, 1]], Reading(reduce_prediction=True), 'prediction has label -1'),
    ],
)
def test_labels_must_be_of_classes(prediction, truth, reading, message, tmp_path):
    pair = make_pair(tmp_path, prediction, truth)
    with raises(rf'(?s){message}.*g\.png\n.*p\.png\n.*--reduce-zero-label'):
        pair_sums(pair, 4, reading, OPTIONS)


def test_names_of_classes(tmp_path):
    path = tmp_path / 'classes.txt'
    path.write_text('sky\nsea of trees \nsand\n\n')
    assert read_classes(str(path)) == ['sky', 'sea of trees', 'sand']
    path.write_text('sky\n\nsand\n')
    with raises(r'classes\.txt has no name in some line'):
        read_classes(str(path))
    with raises('there is no file ade200k'):
        read_classes('ade200k')


def test_names_of_classes_that_mmseg_knows(monkeypatch):
    pytest.importorskip('mmseg')
    assert read_classes('ade20k')[:2] == ['wall', 'building']
    assert len(read_classes('cityscapes')) == 19
    monkeypatch.setitem(sys.modules, 'mmseg.utils', None)
    with raises('cannot be imported .*`pip install mmsegmentation'):
        read_classes('ade20k')
