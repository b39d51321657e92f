"""Train, resume, evaluate."""

import json
import os
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from filelock import FileLock
from helpers import CONFIGS, python
from mmengine.config import Config
from mmengine.registry import MODELS
from mmengine.runner import Runner
from running import NO_WORKERS, TWO_STEPS, fresh_mmengine, write_few_scenes

TRAIN = CONFIGS.parent / 'tools/train.py'
CONFIG = CONFIGS / 'bixt/semfpn_bixt_ti_ade20k.py'
MASKS = CONFIGS / 'bixt/maskrcnn_bixt_ti_3x_coco.py'
BOXES = CONFIGS / 'biformer/retinanet_biformer_t_1x_coco.py'
RUN = Path('work_dirs/semfpn_bixt_ti_ade20k_sample')
SENDS = "dict(type='WandbVisBackend')"
# a few iterations of small crops, a few scenes to evaluate
SHORT = [
    *TWO_STEPS,
    'default_hooks.checkpoint.save_best=None',
    'default_hooks.logger.interval=1',
    'train_dataloader.batch_size=2',
    'val_dataloader.dataset.indices=2',
    'test_dataloader.dataset.indices=2',
]


@pytest.fixture(scope='session')
def folder(shared):
    """A folder with scenes and a training of two iterations, in a process that forks workers.

    No test may change it: all workers of pytest-xdist use it at the same time.
    """
    folder = shared / 'trained'
    with FileLock(shared / 'trained.lock'):
        if not (folder / 'said.txt').exists():
            write_few_scenes(folder / 'data/sample')
            arguments = [TRAIN, CONFIG, '--sample', '--cfg-options', *SHORT]
            (folder / 'said.txt').write_text(python(*arguments, cwd=folder))
    return folder


@pytest.fixture
def run(folder, within):
    """Runs a tool in the folder without errors; returns its output."""

    def run(tool, *arguments, options=()):
        options = '--cfg-options', *SHORT, *NO_WORKERS, *options
        return within(tool, *arguments, '--sample', *options, cwd=folder).said

    return run


def test_run_prints_changes_and_writes_logs_and_checkpoints(folder):
    said, work_dir = (folder / 'said.txt').read_text(), folder / RUN
    assert all(f'\n  {subject}: ' in said for subject in ('data', 'sizes', 'schedule'))
    assert 'Sanity check: 2 validation batches' in said
    assert said.index('Sanity check') < said.index('Iter(train)')
    assert '4 images for train, 2 images for val' in said
    assert len(said.partition('Iter(train)')[0].splitlines()) < 40  # without the config
    assert 'optim_wrapper = dict' in next(work_dir.glob('*/*.log')).read_text()
    assert (work_dir / 'iter_2.pth').is_file()
    records = [json.loads(s) for s in next(work_dir.glob('*/vis_data/scalars.json')).open()]
    assert [r['step'] for r in records if 'loss' in r] == [1, 2]
    assert any('mIoU' in r for r in records)


def test_fast_dev_run_keeps_nothing_and_sends_nothing(folder, within, tmp_path):
    config, before = tmp_path / 'mine.py', sorted(folder.rglob('*'))
    config.write_text(f"_base_ = '{CONFIG}'\nvisualizer = dict(vis_backends=[{SENDS}])")
    arguments = config, '--sample', '--fast-dev-run', '2', '--cfg-options', *NO_WORKERS
    arguments += ('default_hooks.checkpoint.max_keep_ckpts=1',)
    said = within('train.py', *arguments, cwd=folder).said
    lines = [line for line in said.splitlines() if 'Iter(train)' in line]
    assert len(lines) == 2
    assert all(' loss: ' in line for line in lines)
    assert 'Iter(val) [2/2]' in said
    assert ' mIoU: ' in said
    assert sorted(folder.rglob('*')) == before


def test_resume_from_the_note_in_the_work_dir(folder, run, tmp_path):
    os.link(folder / RUN / 'iter_2.pth', tmp_path / 'iter_2.pth')
    (tmp_path / 'last_checkpoint').write_text(str(tmp_path / 'iter_2.pth'))
    arguments = CONFIG, '--resume', '--work-dir', tmp_path
    output = run('train.py', *arguments, options=['train_cfg.max_iters=3'])
    assert f'Load checkpoint from {tmp_path / "iter_2.pth"}' in output
    assert 'resumed epoch: 0, iter: 2' in output
    assert (tmp_path / 'iter_3.pth').is_file()


def test_resume_of_nothing(run, tmp_path, monkeypatch):
    monkeypatch.setattr(Runner, 'train', lambda runner: print('resume', runner.cfg.resume))
    output = run('train.py', CONFIG, '--resume', '--work-dir', tmp_path)
    assert f'--resume: {tmp_path} has no checkpoint, so training begins from the start.' in output
    assert 'resume False' in output


def test_evaluation_and_predictions(folder, run, tmp_path):
    options = ['--out', tmp_path / 'maps', '--show-dir', tmp_path / 'pictures', '--boundary']
    arguments = CONFIG, folder / RUN / 'iter_2.pth', *options, '--work-dir', tmp_path
    output = run('test.py', *arguments, options=['default_hooks.logger.interval=9'])
    assert 'mIoU: ' in output
    assert ' Class ' in output  # the table of all
    assert output.count('band3px/mIoU: ') == 1
    maps = sorted((tmp_path / 'maps').glob('*.png'))
    assert len(maps) == 2
    assert cv2.imread(str(maps[0]), cv2.IMREAD_GRAYSCALE).shape == (192, 256)
    assert len(list((tmp_path / 'pictures').rglob('*.png'))) == 2
    with np.load(tmp_path / 'boundary.npz') as sums:
        assert sums['images'].shape == (2,)
        assert sums['all/true'].shape == (2, 150)


def test_a_checkpoint_without_a_weight_is_not_evaluated(folder, within, tmp_path):
    half = torch.load(folder / RUN / 'iter_2.pth', weights_only=False)['state_dict']
    del half['decode_head.conv_seg.weight']
    torch.save(half, tmp_path / 'half.pth')
    arguments = CONFIG, tmp_path / 'half.pth', '--sample', '--work-dir', tmp_path
    done = within('test.py', *arguments, cwd=folder, fails=True)
    assert 'CheckpointMismatchError: ' in done.stderr


def test_pictures_without_training_images_and_what_is_refused(within, project, tmp_path):
    shutil.copytree(project, tmp_path, dirs_exist_ok=True)

    def test(*arguments, fails=True):
        return within('test.py', *arguments, cwd=tmp_path, fails=fails).stderr

    test('mine.py', 'mine.pth', '--show-dir', 'pictures', fails=False)
    assert len([*tmp_path.glob('pictures/**/*.png')]) == 5
    for kind in ('images', 'labels'):
        shutil.copytree(tmp_path / 'data' / kind, tmp_path / 'data' / kind / 'more')
    for option in ('--show-dir', '--out'):
        assert 'have one name' in test('mine.py', 'mine.pth', option, 'maps')
    one = [f'model.decode_head.{x}' for x in ('num_classes=2', 'out_channels=1', 'threshold=0.5')]
    said = test('mine.py', 'mine.pth', '--tta', '--cfg-options', *one)
    assert '--tta needs a logit for each class' in said
    assert '--tta is for detectors without masks' in test(MASKS, 'none.pth', '--tta')


@pytest.mark.parametrize(
    ('config', 'option', 'threshold', 'score'),
    [
        (MASKS, '--boundary', 'rcnn.score_thr', 'coco/boundary_mAP: '),
        (BOXES, '--tta', 'score_thr', 'coco/bbox_mAP: '),
    ],
    ids=['boundary AP', 'several sizes'],
)
def test_evaluation_of_an_untrained_detector(run, tmp_path, config, option, threshold, score):
    """Whose scores are low."""
    with fresh_mmengine():
        model = MODELS.build({**Config.fromfile(config).model, '_scope_': 'mmdet'})
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'model.pth')
    found, drawn = tmp_path / 'found.pkl', tmp_path / 'drawn'
    arguments = config, tmp_path / 'model.pth', option, '--out', found, '--show-dir', drawn
    one = [f'model.test_cfg.{threshold}=0', 'test_dataloader.dataset.indices=1']
    assert score in run('test.py', *arguments, '--work-dir', tmp_path, options=one)
    assert found.stat().st_size > 0
    assert len(list(drawn.iterdir())) == 1
