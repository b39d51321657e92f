"""tools/check_dataset.py on intact and damaged generated data.

What it finds in an image is tested in tests/test_check/test_sample.py.
"""

import numpy as np
import pytest
from helpers import CONFIGS
from PIL import Image
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


@pytest.mark.parametrize('data', [ADE, COCO, IMAGENET])
def test_intact_and_damaged_images(root, check, data, tmp_path):
    done = check(data, fails=False)
    assert 'train: 4 images (' in done.stdout
    assert 'val: 3 images (' in done.stdout
    assert 'All images and labels can be read.' in done.stdout
    image = max(path for path in (root / data[1]).rglob('*.jpg') if 'train' in str(path))
    label = max(root.rglob('validation/*.png'))
    image.write_bytes(image.read_bytes()[:1000])
    label.unlink()
    done = check(data, '--workers', 1, '--out', tmp_path / 'all.txt')
    count = 2 if data is ADE else 1
    assert f'  {image}' in done.stdout
    assert (str(label) in done.stdout) == (data is ADE)
    assert f'Problems: {count}.' in done.stderr
    assert len((tmp_path / 'all.txt').read_text().splitlines()) == count


def test_ids_of_a_config_without_the_check(root, check):
    """A stock config of mmseg with other labels: 0 to 149 are classes there."""
    for path in (root / 'ade').rglob('*.png'):
        Image.fromarray(np.full((192, 256), 151, np.uint8)).save(path)
    config = 'mmseg::fcn/fcn_r50-d8_4xb4-80k_ade20k-512x512.py'
    done = check((config, ADE[1]))
    assert 'has the ids 150 (49,152 pixels), after reduce_zero_label, but 0 to 149' in done.stdout
    assert 'Problems: 7.' in done.stderr
