"""Points: train, test and draw on generated shapes."""

from pathlib import Path

import cv2
import pytest
from helpers import CONFIGS, others_in_zoo
from running import NO_WORKERS, TWO_STEPS

SMALL = """
_base_ = '{}'
arch = dict(_delete_=True, embed_dims=16, num_heads=2, depth=3)
model = dict(backbone=dict(arch=arch, depth=3, reductions=(4, 2), num_latents=8))
"""


SCORES = dict(
    modelnet40_bixt_ti_hier='accuracy/class_mean', shapenetpart_bixt_ti_encdec='parts/class_mIoU'
)


@pytest.mark.parametrize('name', others_in_zoo(SCORES, ['shapenetpart_bixt_ti_encdec']))
def test_points(within, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path('small.py').write_text(SMALL.format(CONFIGS / f'points/{name}.py'))
    options = '--sample', '--cfg-options', *TWO_STEPS, *NO_WORKERS
    said = within('train.py', 'small.py', *options).said
    assert 'data: generated planes, tables and lamps of 256 points' in said
    checkpoint = 'work_dirs/small_sample/iter_2.pth'
    assert SCORES[name] in within('test.py', 'small.py', checkpoint, *options).said
    tool = 'analysis/visualize_points.py', 'small.py', checkpoint, '--layer', '1'  # after groupings
    assert cv2.imread(within(*tool, *options).stdout.split()[-1]).std() > 10
