"""Train, stop, go on, evaluate; what the tools say if they cannot.

The first training and mmseg's own tools run in processes of their own, the rest in this one.
"""

import json
import subprocess
import sys
from pathlib import Path

import cv2
import mmseg
import numpy as np
import pytest
import torch
from helpers import official_state
from mmengine.config import Config
from mmengine.registry import MODELS
from running import fresh_mmengine, write_few_scenes

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / 'configs/bixt/semfpn_bixt_ti_ade20k.py'
BOXES = 'mmdet::retinanet/retinanet_r50_fpn_1x_coco.py'
RUN = 'work_dirs/semfpn_bixt_ti_ade20k_sample'
# a few iterations of small crops, a few scenes to evaluate
SHORT = [
    'train_cfg.max_iters=2',
    'train_cfg.val_interval=2',
    'default_hooks.checkpoint.interval=2',
    'default_hooks.logger.interval=1',
    'train_dataloader.batch_size=2',
    'val_dataloader.dataset.indices=2',
    'test_dataloader.dataset.indices=2',
]
NO_WORKERS = [
    f'{split}_dataloader.{key}'
    for split in ('train', 'val', 'test')
    for key in ('num_workers=0', 'persistent_workers=False')
]


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """A user's folder with the scenes."""
    folder = tmp_path_factory.mktemp('user')
    write_few_scenes(folder / 'data/sample')
    return folder


@pytest.fixture(scope='module')
def trained(folder, call):
    """What a training of two iterations said."""
    done = call('train.py', CONFIG, '--sample', '--cfg-options', *SHORT, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture
def run(folder, within):
    """Runs a tool in the folder, and expects it to succeed: all that it printed."""

    def run(tool, *arguments, options=()):
        options = '--cfg-options', *SHORT, *NO_WORKERS, *options
        done = within(tool, *arguments, '--sample', *options, cwd=folder)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout + done.stderr

    return run


def test_run_says_what_it_changes_and_leaves_logs_and_checkpoints(trained, folder):
    assert all(f'\n  {subject}: ' in trained for subject in ('data', 'sizes', 'schedule', 'norms'))
    work_dir = folder / RUN
    assert f'Checkpoints will be saved to {work_dir}' in trained
    assert (work_dir / 'iter_2.pth').is_file()
    records = [json.loads(s) for s in next(work_dir.glob('*/vis_data/scalars.json')).open()]
    assert [r['step'] for r in records if 'loss' in r] == [1, 2]
    assert any('mIoU' in r for r in records)


@pytest.mark.usefixtures('trained')
def test_resume_goes_on_with_optimizer_and_history(folder, run):
    output = run('train.py', CONFIG, '--resume', options=['train_cfg.max_iters=4'])
    assert 'resumed epoch: 0, iter: 2' in output
    checkpoint = torch.load(folder / RUN / 'iter_4.pth', weights_only=False)
    steps = {int(state['step']) for state in checkpoint['optimizer']['state'].values()}
    assert steps == {4}
    losses = checkpoint['message_hub']['log_scalars']['train/loss']
    assert len(losses.data[0]) == 4


@pytest.mark.usefixtures('trained')
def test_evaluation_and_predictions(folder, run):
    options = ['--out', 'predictions', '--show-dir', 'pictures', '--boundary']
    # apart: mmengine writes the config of each run into its work dir
    options += ['--work-dir', 'evaluation']
    output = run('test.py', CONFIG, folder / RUN / 'iter_2.pth', *options)
    assert 'mIoU: ' in output
    assert 'band3px/mIoU: ' in output
    maps = sorted((folder / 'predictions').glob('*.png'))
    assert len(maps) == 2
    assert cv2.imread(str(maps[0]), cv2.IMREAD_GRAYSCALE).shape == (192, 256)
    assert len(list((folder / 'pictures').rglob('*.png'))) == 2
    with np.load(folder / 'evaluation/boundary.npz') as sums:
        assert sums['images'].shape == (2,)
        assert sums['all/true'].shape == (2, 150)


@pytest.mark.usefixtures('trained')
def test_test_time_augmentation(folder, run):
    arguments = CONFIG, folder / RUN / 'iter_2.pth', '--tta', '--work-dir', 'augmented'
    output = run('test.py', *arguments, options=['test_dataloader.dataset.indices=1'])
    assert 'mIoU: ' in output


@pytest.mark.usefixtures('trained')
def test_stock_tools_of_mmseg_read_the_checkpoint_too(folder):
    """From the config that mmengine left in the work dir, as on anyone's machine."""
    tool = Path(mmseg.__file__).parent / '.mim/tools/train.py'
    config, checkpoint = folder / RUN / 'semfpn_bixt_ti_ade20k.py', folder / RUN / 'iter_2.pth'
    options = [*SHORT, f'load_from={checkpoint}', 'train_cfg.max_iters=3']
    command = [sys.executable, tool, config, '--work-dir', 'stock', '--resume', '--cfg-options']
    done = subprocess.run(
        [*command, *options], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert 'resumed epoch: 0, iter: 2' in done.stdout
    assert 'mIoU: ' in done.stdout


@pytest.fixture
def refused(within, tmp_path, monkeypatch):
    """Runs a tool that gives up before it begins, in an empty folder without a GPU."""
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '')

    def refused(*arguments):
        done = within(*arguments, cwd=tmp_path)
        assert done.returncode != 0
        return done.stderr

    return refused


def last_line(output):
    return output.strip().splitlines()[-1]


def test_missing_dataset_and_missing_gpu(refused, tmp_path):
    error = refused('train.py', CONFIG)
    assert f'{tmp_path}/data/ade/ADEChallengeData2016/images/training' in error
    assert 'ADEChallengeData2016.zip' in error
    assert '--sample' in last_line(error)
    for part in ('images', 'annotations'):
        for split in ('training', 'validation'):
            (tmp_path / f'data/ade/ADEChallengeData2016/{part}/{split}').mkdir(parents=True)
    assert 'SyncBN, which trains on GPUs only' in last_line(refused('train.py', CONFIG))


def test_mistakes_end_in_one_line(refused, tmp_path):
    write_few_scenes(tmp_path / 'data/sample', 1, 1)
    for arguments, message in (
        (['train.py', 'nowhere.py'], 'nowhere.py'),
        (['train.py', '--amp', CONFIG, '--sample'], '--amp needs a GPU'),
        (['test.py', CONFIG, 'nowhere.pth', '--sample'], 'FileNotFoundError: There is no check'),
        (['test.py', BOXES, 'x.pth', '--sample', '--boundary'], 'evaluates no masks'),
    ):
        assert message in last_line(refused(*arguments))


def test_whole_model_of_the_authors_by_its_name(run, tmp_path, monkeypatch):
    """A file of their layout, as if it had been downloaded: nothing missing, nothing left over."""
    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    path = tmp_path / 'hub/checkpoints/sem_fpn_xcit_tiny_12_p16.pth'
    path.parent.mkdir(parents=True)
    state = official_state('whole__sem_fpn_xcit_tiny_12_p16')
    torch.save(dict(meta={}, state_dict=state), path)
    config = ROOT / 'configs/xcit/semfpn_xcit_t12_p16_ade20k.py'
    output = run('test.py', config, 'xcit://ade-semfpn-tiny12-p16', '--work-dir', tmp_path / 'run')
    assert 'The file is a whole model of the XCiT authors' in output
    assert 'do not match' not in output
    assert 'mIoU' in output


@pytest.mark.usefixtures('trained')
@pytest.mark.parametrize('kind', ['backbone alone', 'classification'])
def test_half_a_model_is_not_evaluated(folder, kind, within, tmp_path):
    state = {'latents': torch.zeros(1, 64, 192)}
    if kind == 'backbone alone':
        whole = torch.load(folder / RUN / 'iter_2.pth', weights_only=False)['state_dict']
        state = {key: value for key, value in whole.items() if key.startswith('backbone.')}
    torch.save(state, tmp_path / 'half.pth')
    arguments = CONFIG, tmp_path / 'half.pth', '--sample', '--work-dir', tmp_path / 'run'
    done = within('test.py', *arguments, '--cfg-options', *NO_WORKERS, cwd=folder)
    assert done.returncode == 1
    assert 'CheckpointMismatchError: ' in done.stderr
    assert 'Traceback' not in done.stderr
    assert kind != 'classification' or 'init_cfg' in done.stderr


DETECTOR = """
_base_ = 'mmdet::retinanet/retinanet_r50_fpn_1x_coco.py'
model = dict(
    backbone=dict(_delete_=True, type='mmbixt.BiXT', arch='tiny'),
    neck=[
        dict(type='mmbixt.FeaturePyramidAdapter', in_channels=192, in_strides=16),
        dict(type='FPN', in_channels=[192] * 4, out_channels=32, num_outs=5),
    ],
    bbox_head=dict(in_channels=32, feat_channels=32, stacked_convs=1),
)
"""


def test_detector_trains_and_is_evaluated(folder, run):
    """The same tools, a stock config of mmdet, with a backbone and a neck of ours."""
    (folder / 'detector.py').write_text(DETECTOR)
    run('train.py', 'detector.py')
    checkpoint = folder / 'work_dirs/detector_sample/iter_2.pth'
    run('test.py', 'detector.py', checkpoint, '--tta', '--out', 'boxes.pkl')
    assert (folder / 'boxes.pkl').stat().st_size > 0


def test_boundary_ap_of_a_detector_with_masks(folder, run):
    config = ROOT / 'configs/bixt/maskrcnn_bixt_ti_3x_coco.py'
    with fresh_mmengine():
        model = MODELS.build({**Config.fromfile(config).model, '_scope_': 'mmdet'})
    torch.save(dict(state_dict=model.state_dict()), folder / 'masks.pth')
    keep_all = ['model.test_cfg.rcnn.score_thr=0']  # untrained, it is sure of nothing
    output = run('test.py', config, 'masks.pth', '--boundary', options=keep_all)
    assert 'coco/segm_mAP: ' in output
    assert 'coco/boundary_mAP: ' in output
