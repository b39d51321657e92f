"""tools/check_dataset.py on intact and damaged copies of the generated data sets."""

import json
import math
import re
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
from check_dataset import WrongFolderError, find_parts
from PIL import Image

from mmbixt.sample.sample_data import write_sample_data

FOLDERS = dict(ade='ade/ADEChallengeData2016', coco='coco', imagenet='imagenet')


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    return write_sample_data(tmp_path_factory.mktemp('made'), 3, 2, 64, 96)


@pytest.fixture
def root(made, tmp_path):
    return shutil.copytree(made, tmp_path / 'sample')


def problems(folder):
    """Problems of all parts and their pictures, except wrong counts."""
    _, parts = find_parts(folder)
    return [
        problem
        for part in parts
        for problem in [*part.problems, *(p for file in part.files for p in part.check(file))]
    ]


@pytest.fixture
def check(within):
    return lambda *arguments: within('check_dataset.py', *arguments)


def test_finds_nothing_wrong_with_generated_data(tmp_path, check, within):
    size = '--train', 2, '--val', 1, '--size', 48, 64
    preview = tmp_path / 'new/preview.png'
    done = within('make_sample_data.py', '--out', tmp_path, *size, '--preview', preview)
    assert done.returncode == 0, done.stderr
    assert cv2.imread(str(preview)).shape[1] == 1400
    for folder in FOLDERS.values():
        assert f'data_root={tmp_path / folder}\n' in done.stdout
        assert 'All files exist and can be read.' in check(tmp_path / folder, '--subset').stdout


def truncate(path):
    path.write_bytes(path.read_bytes()[:1000])


def set_label(value):
    def change(path):
        label = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        label[0, 0] = value
        cv2.imwrite(str(path), label)

    return change


def draw(*shape):
    return lambda path: cv2.imwrite(str(path), np.ones(shape, np.uint8))


def orient(tag):
    def change(path):
        with Image.open(path) as image:
            exif = image.getexif()
            exif[0x0112] = tag
            image.save(path, exif=exif)

    return change


def move(path):
    path.rename(path.with_name('elsewhere'))


def edit(part, **values):
    """Change the first image or annotation, or remove the last category."""

    def change(path):
        content = json.loads(path.read_text())
        content[part][0].update(values) if values else content[part].pop()
        path.write_text(json.dumps(content))

    return change


def remove_annotations(path):
    path.write_text(json.dumps({**json.loads(path.read_text()), 'annotations': []}))


PICTURE = 'images/training/ADE_train_00000003.jpg'
LABEL = 'annotations/training/ADE_train_00000002.png'
INSTANCES = 'annotations/instances_val2017.json'


@pytest.mark.parametrize(
    ('kind', 'name', 'damage', 'message'),
    [
        ('ade', PICTURE, Path.unlink, '{path}: missing'),
        ('ade', PICTURE, truncate, '{path}: damaged ('),
        ('ade', 'annotations/validation', move, '{path}: no such folder'),
        ('ade', LABEL, lambda path: path.write_bytes(b''), '{path}: an empty file'),
        ('ade', LABEL, set_label(151), '{path}: .*label 151, where'),
        ('ade', LABEL, set_label(255), '{path}: .*reduced'),
        ('ade', LABEL, draw(64, 64), '{path} is 64 x 64 pixels, but its picture 96 x 64 pixels'),
        ('ade', LABEL, draw(64, 96, 3), '{path}.* is a RGB picture; labels have one channel'),
        ('ade', PICTURE, orient(6), '{path} is turned .* labels are not turned'),
        ('ade', PICTURE, orient(3), '{path} is turned .* labels may be for the image as it is st'),
        ('coco', 'train2017/000000000002.jpg', orient(8), '{path} is turned .* are not turned'),
        ('coco', 'train2017/000000000002.jpg', Path.unlink, '{path}: missing'),
        ('coco', INSTANCES, Path.unlink, '{path}: missing'),
        ('coco', INSTANCES, truncate, '{path}: no COCO annotations (JSONDecodeError'),
        ('coco', INSTANCES, edit('images', width=97), 'but 97 x 64 pixels in the annotations'),
        ('coco', INSTANCES, edit('annotations', image_id=99), '{path}: .*image 99, which is not'),
        ('coco', INSTANCES, edit('annotations', category_id=99), '{path}: .*category 99, not'),
        ('coco', INSTANCES, edit('annotations', id=2), '{path}: .* ids are not unique'),
        (
            'coco',
            INSTANCES,
            edit('annotations', bbox=[0, 0, math.inf, 9]),
            '{path}: .*bbox .*inf, 9',
        ),
        ('coco', INSTANCES, edit('annotations', bbox=None), '{path}: .* has the bbox None, not'),
        ('coco', INSTANCES, remove_annotations, '{path}: no annotation with a box in its picture'),
        ('coco', INSTANCES, edit('categories'), '{path}: .*1 of 80 categories missing, as '),
    ],
)
def test_damage_is_named(root, kind, name, damage, message):
    folder = root / FOLDERS[kind]
    damage(folder / name)
    found = problems(folder)
    pattern = message.replace('(', r'\(').format(path=re.escape(str(folder / name)))
    assert re.search(pattern, found[0])
    assert len(found) == 1 or damage is move


def test_damage_of_imagenet_is_named(root):
    imagenet = root / 'imagenet'
    first, second = imagenet / 'train/train_00000001.jpg', imagenet / 'train/train_00000002.jpg'
    first.unlink()
    truncate(second)
    missing, broken = problems(imagenet)
    assert missing == f'{first}: missing'
    assert broken.startswith(f'{second}: damaged (')
    _, (train, _) = find_parts(imagenet)
    assert re.fullmatch(r'99\d of 1000 classes have no picture', *train.notes)
    (imagenet / 'meta/val.txt').unlink()
    (imagenet / 'val/n01440764').mkdir()
    assert re.search(r'/val: The number of subfolders \(1\)', problems(imagenet)[-1])


def test_unusual_content_is_noted(root, check):
    coco = root / 'coco'
    edit('annotations', bbox=[0, 0, 0, 5])(coco / INSTANCES)
    (coco / 'val2017/more.jpg').touch()
    assert problems(coco) == []
    output = check(coco, '--subset').stdout
    assert '1 boxes in instances_val2017.json are empty or outside' in output
    assert f'1 pictures in {coco}/val2017 are not in instances_val2017.json' in output


def test_folders_that_are_not_a_root(root, tmp_path, check):
    for folder, message in (
        (root / 'ade', 'ADEChallengeData2016 may be'),
        (root, r'sample/ade/ADE.* or .*sample/coco may be'),
        (root / 'coco/train2017', r'neither ADE20K .* nor COCO .* nor ImageNet'),
    ):
        with pytest.raises(WrongFolderError, match=message):
            find_parts(folder)
    assert check(tmp_path / 'nowhere').stderr == f'error: There is no folder {tmp_path}/nowhere.\n'


def test_shows_a_few_problems_and_writes_all(root, tmp_path, check):
    """One of them is the number of pictures, which differs from the published one."""
    ade = root / FOLDERS['ade']
    for number in range(100, 125):
        (ade / f'images/training/ADE_train_{number:08}.jpg').touch()
    done = check(ade, '--workers', 1, '--out', tmp_path / 'all.txt')
    assert '28 pictures, not 20,210' in done.stdout
    assert done.stdout.count(': missing') == 19
    assert '... and 6 more' in done.stdout
    assert '27 problems.' in done.stderr
    assert len((tmp_path / 'all.txt').read_text().splitlines()) == 27
