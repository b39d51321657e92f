"""tools/check_dataset.py on the generated data sets, whole and damaged."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from mmbixt.datasets import inspection
from mmbixt.datasets.inspection import WrongFolderError, find_parts
from mmbixt.sample.sample_data import write_sample_data

DOCS = Path(__file__).parents[2] / 'docs/datasets.md'


@pytest.fixture
def root(tmp_path):
    return Path(write_sample_data(tmp_path / 'sample', 3, 2, 64, 96))


@pytest.fixture
def ade(root):
    return root / 'ade/ADEChallengeData2016'


@pytest.fixture
def coco(root):
    return root / 'coco'


def problems(folder):
    """Of all parts, opened pictures included, without counts."""
    _, parts = find_parts(folder)
    return [
        problem
        for part in parts
        for problem in [*part.problems, *(p for file in part.files for p in part.check(file))]
    ]


@pytest.fixture
def check(within):
    return lambda *arguments: within('check_dataset.py', *arguments)


@pytest.mark.parametrize('kind', ['ade', 'coco'])
def test_finds_nothing_wrong_with_whole_data(kind, request, check):
    folder = request.getfixturevalue(kind)
    assert problems(folder) == []
    done = check(folder, '--subset')
    assert done.returncode == 0, done.stderr
    assert 'All is there and can be read.' in done.stdout


def test_counts_are_those_of_the_published_data(ade, check):
    done = check(ade, '--quick')
    assert done.returncode == 1
    assert '3 pictures, not 20,210' in done.stdout
    assert '2 pictures, not 2,000' in done.stdout


class TestADE20K:
    def label(self, ade, name='ADE_train_00000002'):
        return ade / f'annotations/training/{name}.png'

    def picture(self, ade, name='ADE_train_00000002'):
        return ade / f'images/training/{name}.jpg'

    def test_missing_label_and_picture(self, ade):
        self.label(ade).unlink()
        self.picture(ade, 'ADE_train_00000003').unlink()
        assert problems(ade) == [
            f'{self.label(ade)}: missing',
            f'{self.picture(ade, "ADE_train_00000003")}: missing',
        ]

    def test_missing_folder(self, ade):
        (ade / 'annotations/validation').rename(ade / 'elsewhere')
        assert problems(ade)[0] == f'{ade}/annotations/validation: no such folder'

    def test_truncated_picture(self, ade):
        content = self.picture(ade).read_bytes()
        self.picture(ade).write_bytes(content[: len(content) // 2])
        (problem,) = problems(ade)
        assert problem.startswith(f'{self.picture(ade)}: broken (')

    def test_empty_label(self, ade):
        self.label(ade).write_bytes(b'')
        assert problems(ade) == [f'{self.label(ade)}: an empty file']

    @pytest.mark.parametrize(('value', 'words'), [(151, 'label 151, where'), (255, 'reduced')])
    def test_label_out_of_range(self, ade, value, words):
        label = cv2.imread(str(self.label(ade)), cv2.IMREAD_UNCHANGED)
        label[0, 0] = value
        cv2.imwrite(str(self.label(ade)), label)
        (problem,) = problems(ade)
        assert problem.startswith(f'{self.label(ade)}: ')
        assert words in problem

    def test_label_of_another_size(self, ade):
        cv2.imwrite(str(self.label(ade)), np.ones((64, 64), np.uint8))
        expected = f'{self.label(ade)} is 64 x 64 pixels, but its picture 96 x 64 pixels'
        assert problems(ade) == [expected]

    def test_coloured_label(self, ade):
        cv2.imwrite(str(self.label(ade)), np.ones((64, 96, 3), np.uint8))
        assert 'is a RGB picture; labels have one channel' in problems(ade)[0]


class TestCOCO:
    def rewrite(self, coco, change):
        path = coco / 'annotations/instances_val2017.json'
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))
        return path

    def test_missing_picture(self, coco):
        (coco / 'train2017/000000000002.jpg').unlink()
        assert problems(coco) == [f'{coco}/train2017/000000000002.jpg: missing']

    def test_broken_picture(self, coco):
        (coco / 'val2017/000000000001.jpg').write_bytes(b'<html>not found</html>')
        (problem,) = problems(coco)
        assert problem.startswith(f'{coco}/val2017/000000000001.jpg: broken (')

    def test_picture_of_another_size(self, coco):
        self.rewrite(coco, lambda content: content['images'][0].update(width=97))
        assert 'is 96 x 64 pixels, but 97 x 64 pixels in the annotations' in problems(coco)[0]

    def test_missing_annotations(self, coco):
        (coco / 'annotations/instances_train2017.json').unlink()
        assert problems(coco) == [f'{coco}/annotations/instances_train2017.json: missing']

    def test_truncated_annotations(self, coco):
        path = coco / 'annotations/instances_val2017.json'
        path.write_text(path.read_text()[:1000])
        assert f'{path}: no COCO annotations (JSONDecodeError' in problems(coco)[0]

    def test_missing_folder(self, coco):
        (coco / 'val2017').rename(coco / 'elsewhere')
        assert problems(coco) == [f'{coco}/val2017: no such folder']

    @pytest.mark.parametrize(
        ('change', 'words'),
        [
            (lambda c: c['annotations'][0].update(image_id=99), 'image 99, which is not listed'),
            (lambda c: c['annotations'][0].update(category_id=99), 'category 99, not listed'),
            (lambda c: c['annotations'][0].update(id=2), 'annotation ids are not unique'),
            (lambda c: c['categories'].pop(), '1 of 80 categories missing, as '),
        ],
    )
    def test_annotations_that_do_not_fit(self, coco, change, words):
        path = self.rewrite(coco, change)
        (problem,) = problems(coco)
        assert problem.startswith(f'{path}: ')
        assert words in problem

    def test_what_does_no_harm_is_noted(self, coco, check):
        self.rewrite(coco, lambda c: c['annotations'][0].update(bbox=[0, 0, 0, 5]))
        (coco / 'val2017/more.jpg').touch()
        assert problems(coco) == []
        output = check(coco, '--subset').stdout
        assert '1 boxes in instances_val2017.json are empty or outside' in output
        assert f'1 pictures in {coco}/val2017 are not in instances_val2017.json' in output


def test_folders_that_are_no_root(root, tmp_path, check):
    with pytest.raises(WrongFolderError, match='ADEChallengeData2016 may be'):
        find_parts(root / 'ade')
    with pytest.raises(WrongFolderError, match=r'sample/ade/ADE.* or .*sample/coco may be'):
        find_parts(root)
    with pytest.raises(WrongFolderError, match=r'neither ADE20K .* nor COCO'):
        find_parts(root / 'coco/train2017')
    done = check(tmp_path / 'nowhere')
    assert done.returncode == 1
    assert done.stderr == f'error: There is no folder {tmp_path}/nowhere.\n'


def test_shows_a_few_problems_and_writes_all(ade, tmp_path, check):
    for number in range(100, 125):
        (ade / f'images/training/ADE_train_{number:08}.jpg').touch()
    done = check(ade, '--subset', '--workers', 1, '--out', tmp_path / 'all.txt')
    assert done.stdout.count(': missing') == 20
    assert '... and 5 more' in done.stdout
    assert '25 problems.' in done.stderr
    assert len((tmp_path / 'all.txt').read_text().splitlines()) == 25


def test_numbers_of_the_published_data_are_those_of_the_docs():
    text = DOCS.read_text()
    for count in [*inspection.ADE_COUNTS.values(), *inspection.COCO_COUNTS.values()]:
        assert f'{count:,}' in text
