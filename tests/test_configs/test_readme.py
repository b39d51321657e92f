"""The README's lines, as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import torch
from helpers import CONFIGS, official_state
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from mmbixt.checkpoints.sources import find

README = Path(__file__).parents[2] / 'README.md'


def test_config_of_a_user_builds_and_runs():
    """On the stock config that it inherits."""
    snippet = re.search(r"```python\n(_base_ = 'mmseg::.*?)```", README.read_text(), re.DOTALL)[1]
    cfg = Config.fromstring(snippet, '.py')
    assert cfg.model.backbone.pop('init_cfg').checkpoint == 'bixt://tiny-16-d13'
    init_default_scope('mmseg')
    text = cfg.pretty_text.replace("'SyncBN'", "'BN'")
    model = MODELS.build(Config.fromstring(text, '.py').model).eval()
    with torch.no_grad():
        assert model(torch.randn(1, 3, 64, 96)).shape == (1, 150, 16, 24)


def test_prediction(tmp_path):
    """As there, but of a smaller model, whose file lies in the cache as if downloaded."""
    snippet = re.search(r'```python\n(from mmseg.*?)```', README.read_text(), re.DOTALL)[1]
    snippet = snippet.replace('xcit_s12', 'xcit_t12').replace('small12', 'tiny12')
    (tmp_path / 'configs').symlink_to(CONFIGS)
    cv2.imwrite(str(tmp_path / 'photo.jpg'), np.zeros((72, 100, 3), np.uint8))
    source = find('xcit://ade-semfpn-tiny12-p16')
    cache = tmp_path / 'hub/checkpoints'
    cache.mkdir(parents=True)
    state = official_state('whole__sem_fpn_xcit_tiny_12_p16')
    torch.save(dict(meta={}, state_dict=state), cache / source.url.rpartition('/')[2])
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', f'{snippet}\nprint("SHAPE", labels.shape)'],
        cwd=tmp_path,
        env={**os.environ, 'TORCH_HOME': str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert 'SHAPE (72, 100)' in done.stdout, done.stderr[-3000:]
    assert 'missing keys' not in done.stdout
    assert (tmp_path / 'results/vis/photo.jpg').is_file()
