import os
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmbixt.config import PROJECTS
from mmbixt.evaluation.sums import read_sums

CAMVID = PROJECTS / 'camvid'
CONFIGS = sorted(CAMVID.glob('configs/*.py'), key=lambda path: path.stem)


@pytest.mark.parametrize('path', CONFIGS, ids=lambda path: path.stem)
def test_networks_start_from_random_weights(path):
    cfg = Config.fromfile(path)
    init_default_scope('mmseg')
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    assert not cfg.model.backbone.get('pretrained')
    assert model.backbone.init_cfg is None or 'checkpoint' not in str(model.backbone.init_cfg)
    assert model.decode_head.num_classes == 11
    assert [scheduler.end for scheduler in cfg.param_scheduler] == [3125 // 20, 3125]


@pytest.fixture
def folder(tmp_path):
    """With a few images of noise in place of CamVid."""
    random = np.random.default_rng(0)
    for split in ('train', 'val', 'test'):
        for kind, shape, high in (('img', (60, 80, 3), 256), ('ann', (60, 80), 11)):
            path = tmp_path / 'data/camvid' / f'{kind}_dir' / split
            path.mkdir(parents=True)
            for i in range(3):
                file = path / f'{i}.{"png" if kind == "ann" else "jpg"}'
                cv2.imwrite(str(file), random.integers(high, size=shape, dtype=np.uint8))
    return tmp_path


@pytest.mark.zoo
def test_runs_and_writes_the_table(folder):
    readme = folder / 'README.md'
    readme.write_text('before\n<!-- table: table.py -->\n<!-- end of table -->\nafter\n')
    environment = {
        **os.environ,
        'PATH': f'{Path(sys.executable).parent}:{os.environ["PATH"]}',
        'NETWORKS': 'resnet18 xcit_t12_p16-1',
        'README': str(readme),
        'FLAGS': '--cfg-options train_dataloader.num_workers=0 '
        'train_dataloader.persistent_workers=False train_dataloader.batch_size=2',
    }

    def run():
        command = ['bash', CAMVID / 'run.sh', '16']
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        return readme.read_text()

    text = run()
    assert text.startswith('before\n')
    assert text.endswith('after\n')
    lines = [line for line in text.splitlines() if ' G | ' in line]  # without IoU by class
    rows = {line.split(' | ')[0].strip('| '): line for line in lines}
    assert rows['ResNet-18'].split(' | ')[3] == '4'
    assert 'not run' in rows['XCiT-T12/16']
    assert 'not run' not in rows['XCiT-T12/16, seed 1']
    sums = read_sums(folder / 'work_dirs/camvid/16/resnet18/test/boundary.npz')
    assert len(sums.images) == 3
    seed = Config.fromfile(
        folder / 'work_dirs/camvid/16/xcit_t12_p16-1/semfpn_xcit_t12_p16_camvid.py'
    )
    assert seed.randomness.seed == 1
    assert run() == text  # nothing is trained or tested again
