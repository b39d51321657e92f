"""tools/check_dataset.py on intact and damaged generated data.

What it finds in an image is tested in tests/test_engine/test_sample_check.py.
"""

import shutil

import pytest
from helpers import CONFIGS
from running import write_few_scenes

ADE = CONFIGS / 'bixt/semfpn_bixt_ti_ade20k.py', 'ade/ADEChallengeData2016'
COCO = CONFIGS / 'bixt/maskrcnn_bixt_ti_3x_coco.py', 'coco/'
IMAGENET = CONFIGS / 'bixt/bixt_ti_l64_p16_in1k.py', 'imagenet'


@pytest.fixture
def root(tmp_path):
    return write_few_scenes(tmp_path)


@pytest.fixture
def check(within, root):
    def check(data, *arguments, fails=True):
        config, folder = data
        splits = 'train', 'val', 'test'
        options = [f'{split}_dataloader.dataset.data_root={root / folder}' for split in splits]
        arguments = config, *arguments, '--cfg-options', *options
        return within('check_dataset.py', *arguments, fails=fails)

    return check


def truncate(path):
    path.write_bytes(path.read_bytes()[:1000])


@pytest.mark.parametrize('data', [ADE, COCO, IMAGENET])
def test_intact_and_damaged_images(root, check, data):
    done = check(data, '--subset', fails=False)
    assert 'train: 4 images (' in done.stdout
    assert 'val: 3 images (' in done.stdout
    assert 'All images and labels can be read.' in done.stdout
    image = max(path for path in (root / data[1]).rglob('*.jpg') if 'train' in str(path))
    label = max(root.rglob('validation/*.png'))
    truncate(image)
    label.unlink()
    done = check(data, '--subset', '--workers', 1)
    assert f'  {image}: damaged' in done.stdout
    assert (f'  {label}: missing' in done.stdout) == (data is ADE)
    assert ('2 problems.' if data is ADE else '1 problem.') in done.stderr


def test_number_of_images_and_list_of_all_problems(root, check, tmp_path):
    """The published number, because an image may be missing together with its label."""
    image = next(root.rglob('images/training/*.jpg'))
    for i in range(25):
        shutil.copy(image, image.with_name(f'without_label_{i}.jpg'))
    arguments = ADE, '--out', tmp_path / 'all.txt'
    done = check(*arguments)
    assert '  29 images, not 20,210 (if this is intended: --subset)\n' in done.stdout
    assert '  3 images, not 2,000' in done.stdout
    assert '... and 6 more (all with --out FILE)' in done.stdout
    assert '27 problems.' in done.stderr
    assert len((tmp_path / 'all.txt').read_text().splitlines()) == 27
    assert '25 problems.' in check(*arguments, '--subset').stderr


def test_annotations_that_cannot_be_read(root, check):
    annotations = next(root.glob('coco/annotations/instances_train*.json'))
    truncate(annotations)
    assert check(COCO).stderr.startswith('ConfigError: train_dataloader.dataset: ')
    annotations.unlink()
    assert f'Missing:\n  {annotations}\n' in check(COCO).stderr


def test_mistakes_are_found_before_images_are_read(check, within, tmp_path):
    done = check(ADE, '--out', tmp_path / 'nowhere/all.txt')
    assert done.stderr.startswith('FileNotFoundError: ')
    assert 'images (' not in done.stdout
    for code, message in (
        ('', 'mine.py has no data sets'),
        ('val_dataloader = [dict(), dict()]', 'val_dataloader has [{}, {}] in place of a dict'),
    ):
        (tmp_path / 'mine.py').write_text(f"default_scope = 'mmseg'\n{code}")
        assert message in within('check_dataset.py', tmp_path / 'mine.py', fails=True).stderr
