import json

import pytest
from helpers import CONFIGS
from mmengine.config import Config

from mmbixt.config import PROJECTS, read_config
from projects.studies.tools.resolution_curve import options_of

PIPELINE = 'test_dataloader.dataset.pipeline'


@pytest.mark.parametrize(
    ('config', 'size', 'options'),
    [
        ('xcit/xcit_s12_p16_in1k', 160, ['1.scale=160', '2.crop_size=160']),
        ('biformer/biformer_s_in1k', 448, ['1.scale=512', '2.crop_size=448']),
        ('bisa_swin/swin_t_cifar100', 192, ['0.scale=219', '1.crop_size=192']),
        ('biformer/semfpn_biformer_t_ade20k', 640, ['1.scale=(2560,640)']),
        ('bixt/maskrcnn_bixt_ti_3x_coco', 400, ['1.scale=(666,400)']),
        ('mmpretrain::deit/deit-small_4xb256_in1k', 160, ['1.scale=183', '2.crop_size=160']),
    ],
)
def test_all_numbers_of_the_pipeline_are_scaled(config, size, options):
    cfg = read_config(f'{config if "::" in config else CONFIGS / config}.py')
    assert options_of(cfg, size) == [f'{PIPELINE}.{option}' for option in options]


@pytest.mark.zoo
@pytest.mark.usefixtures('in_project')
def test_curve_of_a_segmentor(within, tmp_path):
    arguments = 'mine.py', 'mine.pth', '--sizes', 64, 32, '--work-dir', tmp_path, '--boundary'
    said = within(PROJECTS / 'studies/tools/resolution_curve.py', *arguments).stdout
    scores = json.loads((tmp_path / 'sizes.json').read_text())
    assert [*scores] == ['32', '64']
    assert [*scores['32']] == ['mIoU in band3px', 'Boundary IoU']
    assert f'Boundary IoU {scores["64"]["Boundary IoU"]:.2f}' in said
    assert (tmp_path / 'sizes.png').stat().st_size > 5000
    tested = Config.fromfile(tmp_path / '32/mine.py').test_dataloader.dataset
    assert tested.pipeline[1].scale == (32, 32)
