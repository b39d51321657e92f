"""The tools with a config of mmpretrain: train, evaluate, predict."""

from pathlib import Path

import mmengine
import pytest
import torch
from documents import shown
from helpers import official_state
from mmpretrain.datasets.categories import IMAGENET_CATEGORIES
from running import NO_WORKERS, TWO_STEPS, fresh_mmengine, write_few_scenes

CLASSIFIER = """
_base_ = 'mmbixt::bixt/bixt_ti_l64_p16_in1k.py'
custom_hooks = [dict(type='EMAHook', momentum=1e-4)]
"""
SHORT = [*TWO_STEPS, *NO_WORKERS, 'train_dataloader.batch_size=2']


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('user')
    write_few_scenes(folder / 'data/sample')
    (folder / 'mine.py').write_text(CLASSIFIER)
    return folder


def test_training_evaluation_and_predictions(within, folder):
    def run(tool, *arguments):
        options = '--sample', '--cfg-options', *SHORT
        return within(tool, 'mine.py', *arguments, *options, cwd=folder).said

    output = run('train.py')
    assert 'accuracy/top5: ' in output
    assert 'average: of the weights' in output
    checkpoint = folder / 'work_dirs/mine_sample/iter_2.pth'
    arguments = '--out', 'predictions.pkl', '--show-dir', 'pictures'
    assert 'accuracy/top1: ' in run('test.py', checkpoint, *arguments)
    assert 'accuracy/top1: ' in run('test.py', checkpoint, '--tta')
    predictions = mmengine.load(folder / 'predictions.pkl')
    assert [p['pred_score'].shape for p in predictions] == [(1000,)] * 3
    names = {f'{Path(prediction["img_path"]).name}_0.png' for prediction in predictions}
    assert {path.name for path in (folder / 'pictures').iterdir()} == names


def test_inferencer(folder):
    """The example of docs/projects.md."""
    weights = folder / 'nano.pth'
    torch.save({'model': official_state('xcit_nano_12_p16')}, weights)
    image = str(folder / 'data/sample/imagenet/val/val_00000001.jpg')
    (code,) = shown('classify')
    code, found = code.replace('xcit://nano12-p16', str(weights)).replace('photo.jpg', image), {}
    with fresh_mmengine():
        exec(code, found)
    assert found['name'] in IMAGENET_CATEGORIES
