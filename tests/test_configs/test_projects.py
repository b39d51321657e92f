"""What docs/projects.md shows works as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from helpers import CONFIGS, official_state
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope

from mmbixt.checkpoints.sources import find

DOCS = Path(__file__).parents[2] / 'docs/projects.md'


def snippets(kind):
    """The code blocks behind a comment that says of which kind they are."""
    pattern = rf'<!-- tested: {kind} -->\n```python\n(.*?)```'
    found = re.findall(pattern, DOCS.read_text(), re.DOTALL)
    assert found
    return found


def on_one_cpu(text):
    return Config.fromstring(text.replace("'SyncBN'", "'BN'"), '.py')


CASES = [(kind, snippet) for kind in ('mmseg', 'mmdet') for snippet in snippets(kind)]


@pytest.mark.parametrize(('scope', 'snippet'), CASES, ids=['semfpn', 'cascade', 'detr'])
def test_config_of_a_user_builds_and_runs(scope, snippet):
    cfg = Config.fromstring(snippet, '.py')
    find(cfg.model.backbone.pop('init_cfg').checkpoint)  # a name that exists
    init_default_scope(scope)
    model = MODELS.build(on_one_cpu(cfg.pretty_text).model).eval()
    with torch.no_grad():
        maps = model.extract_feat(torch.randn(1, 3, 64, 96))
    assert [tuple(m.shape[1:]) for m in maps[:2]] in (
        [(256, 16, 24), (256, 8, 12)],
        [(256, 8, 12), (256, 4, 6)],
    )


def test_inherits_without_an_import_before(tmp_path):
    """Read by mmengine alone, as the stock tools do."""
    (snippet,) = snippets('inherit')
    (tmp_path / 'mine.py').write_text(snippet)
    code = (
        'from mmengine.config import Config\n'
        'print(Config.fromfile("mine.py").model.backbone.type)\n'
        'from mmengine.hub import get_config\n'
    )
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == 'mmbixt.XCiT\n', done.stderr


def test_layer_decay():
    (snippet,) = snippets('layer decay')
    config = CONFIGS / 'xcit/semfpn_xcit_t12_p16_ade20k.py'
    cfg = Config.fromstring(f'_base_ = {str(config)!r}\n{snippet}', '.py')
    init_default_scope('mmseg')
    model = MODELS.build(cfg.model)
    groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    assert {round(group['lr'] / 6e-5, 6) for group in groups} >= {1.0, 0.9, 0.81}


def test_optimizer():
    (snippet,) = snippets('optimizer')
    cfg = Config.fromstring(snippets('mmseg')[0] + snippet, '.py')
    cfg.model.backbone.pop('init_cfg')
    init_default_scope('mmseg')
    model = MODELS.build(cfg.model)
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    assert type(optimizer).__name__ == 'AdamW'
    without_decay = {id(g['params'][0]) for g in optimizer.param_groups if not g['weight_decay']}
    layer = model.backbone.blocks[0]
    for parameter in (layer.gamma1, layer.attn.temperature, layer.norm1.weight):
        assert id(parameter) in without_decay


def test_prediction_by_name(tmp_path):
    """Of a smaller model, whose file lies in the cache as if downloaded."""
    (snippet,) = snippets('predict by name')
    snippet = snippet.replace('xcit_s12', 'xcit_t12')
    cache = tmp_path / 'hub/checkpoints'
    cache.mkdir(parents=True)
    state = official_state('whole__sem_fpn_xcit_tiny_12_p16')
    torch.save(dict(meta={}, state_dict=state), cache / 'sem_fpn_xcit_tiny_12_p16.pth')
    cv2.imwrite(str(tmp_path / 'photo.jpg'), np.zeros((72, 100, 3), np.uint8))
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', f'{snippet}\nprint("SHAPE", labels.shape)'],
        cwd=tmp_path,
        env={**os.environ, 'TORCH_HOME': str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert 'SHAPE (72, 100)' in done.stdout, done.stderr[-3000:]
    assert 'missing keys' not in done.stdout


def test_prediction(tmp_path):
    """With files named as there, of a smaller model."""
    (snippet,) = snippets('predict')
    state = official_state('whole__sem_fpn_xcit_tiny_12_p16')
    torch.save(dict(meta={}, state_dict=state), tmp_path / 'sem_fpn_xcit_small_12_p16.pth')
    cfg = Config.fromfile(CONFIGS / 'xcit/semfpn_xcit_t12_p16_ade20k.py')
    cfg.dump(str(tmp_path / 'semfpn_xcit_s12_p16_ade20k.py'))  # as mim download does
    code = f"""
import os, shutil, cv2, numpy
cv2.imwrite('photo.jpg', numpy.zeros((72, 100, 3), numpy.uint8))
{snippet}
print('SHAPE', labels.shape)
os.mkdir('photos'); shutil.copy('photo.jpg', 'photos')
segment('photos', out_dir='folder')
"""
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', code], cwd=tmp_path, capture_output=True, text=True
    )
    assert 'SHAPE (72, 100)' in done.stdout, done.stderr[-3000:]
    assert (tmp_path / 'results/vis/photo.jpg').is_file()
    assert (tmp_path / 'folder/vis/photo.jpg').is_file()
