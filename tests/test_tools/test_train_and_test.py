"""The tools as a user calls them: train, stop, go on, evaluate; what they say if they cannot."""

import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from helpers import official_state

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / 'configs/bixt/semfpn_bixt_ti_ade20k.py'
# a few iterations of small crops, a few scenes to evaluate
SHORT = [
    'train_cfg.max_iters={iterations}',
    'train_cfg.val_interval=2',
    'default_hooks.checkpoint.interval=2',
    'default_hooks.logger.interval=1',
    'train_dataloader.batch_size=2',
    'val_dataloader.dataset.indices=3',
    'test_dataloader.dataset.indices=3',
]


def call(folder, tool, *arguments, iterations=2, options=(), check=True):
    options = [*(option.format(iterations=iterations) for option in SHORT), *options]
    arguments = [*arguments, '--cfg-options', *options]
    command = [sys.executable, ROOT / 'tools' / tool, *arguments]
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert not check or done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """A run of two iterations, on data in the folder that it was started in."""
    folder = tmp_path_factory.mktemp('user')
    return folder, call(folder, 'train.py', CONFIG, '--sample')


def test_sample_says_what_it_changes(trained):
    _, output = trained
    changes = [line.strip() for line in output.splitlines() if line.startswith('  ')]
    for subject in ('data: ', 'sizes: ', 'schedule: ', 'norms: '):
        assert any(line.startswith(subject) for line in changes)


def test_run_leaves_logs_and_checkpoints_where_it_says(trained):
    folder, output = trained
    work_dir = folder / 'work_dirs/semfpn_bixt_ti_ade20k_sample'
    assert f'Checkpoints will be saved to {work_dir}' in output
    assert (work_dir / 'iter_2.pth').is_file()
    records = [json.loads(s) for s in next(work_dir.glob('*/vis_data/scalars.json')).open()]
    assert [r['step'] for r in records if 'loss' in r] == [1, 2]
    assert any('mIoU' in r for r in records)


def test_resume_goes_on_with_optimizer_and_history(trained):
    folder, _ = trained
    output = call(folder, 'train.py', CONFIG, '--sample', '--resume', iterations=4)
    assert 'resumed epoch: 0, iter: 2' in output
    work_dir = folder / 'work_dirs/semfpn_bixt_ti_ade20k_sample'
    checkpoint = torch.load(work_dir / 'iter_4.pth', weights_only=False)
    steps = {int(state['step']) for state in checkpoint['optimizer']['state'].values()}
    assert steps == {4}
    losses = checkpoint['message_hub']['log_scalars']['train/loss']
    assert len(losses.data[0]) == 4


@pytest.mark.parametrize('tta', [False, True])
def test_evaluation_and_predictions(trained, tta):
    folder, _ = trained
    checkpoint = folder / 'work_dirs/semfpn_bixt_ti_ade20k_sample/iter_2.pth'
    options = ['--tta'] if tta else ['--out', 'predictions', '--show-dir', 'pictures', '--boundary']
    # apart: mmengine writes the config of each run into its work dir, also one with --tta
    options += ['--work-dir', 'evaluation']
    output = call(folder, 'test.py', CONFIG, checkpoint, '--sample', *options)
    assert 'mIoU: ' in output
    if not tta:
        maps = sorted((folder / 'predictions').glob('*.png'))
        assert len(maps) == 3
        assert cv2.imread(str(maps[0]), cv2.IMREAD_GRAYSCALE).shape == (192, 256)
        assert len(list((folder / 'pictures').rglob('*.png'))) == 3
        assert 'band3px/mIoU: ' in output
        with np.load(folder / 'evaluation/boundary.npz') as sums:
            assert sums['images'].shape == (3,)
            assert sums['all/true'].shape == (3, 150)


def test_stock_tools_of_mmseg_read_the_checkpoint_too(trained):
    """From the config that mmengine left in the work dir, as on anyone's machine."""
    import mmseg

    folder, _ = trained
    stock = Path(mmseg.__file__).parent / '.mim/tools'
    work_dir = folder / 'work_dirs/semfpn_bixt_ti_ade20k_sample'
    config, checkpoint = work_dir / 'semfpn_bixt_ti_ade20k.py', work_dir / 'iter_2.pth'
    assert 'mIoU: ' in call(folder, stock / 'test.py', config, checkpoint)
    resume = ['--work-dir', 'stock', '--resume']
    output = call(
        folder,
        stock / 'train.py',
        config,
        *resume,
        iterations=3,
        options=[f'load_from={checkpoint}', 'train_cfg.val_interval=3'],
    )
    assert 'resumed epoch: 0, iter: 2' in output


def last_line(output):
    return output.strip().splitlines()[-1]


@pytest.fixture
def refused(within, tmp_path, monkeypatch):
    """Runs a tool that gives up before it begins, in an empty folder without a GPU."""
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '')
    monkeypatch.chdir(tmp_path)

    def refused(*arguments):
        done = within(*arguments)
        assert done.returncode != 0
        return done.stderr

    return refused


def test_missing_dataset(refused, tmp_path):
    error = refused('train.py', CONFIG)
    assert f'{tmp_path}/data/ade/ADEChallengeData2016/images/training' in error
    assert 'ADEChallengeData2016.zip' in error
    assert '--sample' in last_line(error)


def test_missing_config(refused):
    assert 'nowhere.py' in last_line(refused('train.py', 'nowhere.py'))


def test_amp_on_a_cpu_is_refused(refused):
    assert '--amp needs a GPU' in last_line(refused('train.py', '--amp', CONFIG, '--sample'))


def test_sync_bn_on_a_cpu_is_refused(refused, tmp_path):
    for part in ('images', 'annotations'):
        for split in ('training', 'validation'):
            (tmp_path / f'data/ade/ADEChallengeData2016/{part}/{split}').mkdir(parents=True)
    assert 'SyncBN, which trains on GPUs only' in last_line(refused('train.py', CONFIG))


def test_whole_model_of_the_authors_by_its_name(trained, tmp_path, monkeypatch):
    """A file of their layout, as if it had been downloaded: nothing missing, nothing left over."""
    folder, _ = trained
    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    cache = tmp_path / 'hub/checkpoints'
    cache.mkdir(parents=True)
    state = official_state('whole__sem_fpn_xcit_tiny_12_p16')
    torch.save(dict(meta={}, state_dict=state), cache / 'sem_fpn_xcit_tiny_12_p16.pth')
    config = ROOT / 'configs/xcit/semfpn_xcit_t12_p16_ade20k.py'
    options = ['--sample', '--work-dir', tmp_path / 'run']
    output = call(folder, 'test.py', config, 'xcit://ade-semfpn-tiny12-p16', *options)
    assert 'The file is a whole model of the XCiT authors' in output
    assert 'do not match' not in output
    assert 'mIoU' in output


def test_half_a_model_is_not_evaluated(trained, tmp_path):
    """The whole model of another decoder: its backbone would fit."""
    folder, _ = trained
    state = official_state('whole__sem_fpn_xcit_tiny_12_p16')
    torch.save(dict(meta={}, state_dict=state), tmp_path / 'semfpn.pth')
    config = ROOT / 'configs/xcit/upernet_xcit_t12_p16_ade20k.py'
    options = ['--sample', '--work-dir', tmp_path / 'run']
    output = call(folder, 'test.py', config, tmp_path / 'semfpn.pth', *options, check=False)
    assert 'CheckpointMismatchError: The checkpoint does not fit' in output
    assert 'Traceback' not in output
    assert 'mIoU:' not in output


def test_missing_checkpoint(trained):
    output = call(trained[0], 'test.py', CONFIG, 'nowhere.pth', '--sample', check=False)
    assert last_line(output) == ('FileNotFoundError: There is no checkpoint file at nowhere.pth.')


def test_classification_checkpoint_is_not_for_test(trained, tmp_path):
    torch.save({'latents': torch.zeros(1, 64, 192)}, tmp_path / 'bixt.pth')
    output = call(trained[0], 'test.py', CONFIG, tmp_path / 'bixt.pth', '--sample', check=False)
    assert 'CheckpointMismatchError' in output
    assert 'init_cfg' in output


@pytest.mark.parametrize('tool', ['train.py', 'test.py'])
def test_help(within, tool):
    output = within(tool, '--help').stdout
    for option in ('--work-dir', '--sample', '--cfg-options', '--launcher', '--trust-checkpoint'):
        assert option in output


DETECTOR = """
_base_ = 'mmdet::retinanet/retinanet_r50_fpn_1x_coco.py'
model = dict(
    backbone=dict(_delete_=True, type='mmbixt.BiXT', arch='tiny'),
    neck=[
        dict(type='mmbixt.FeaturePyramidAdapter', in_channels=192, in_strides=16),
        dict(type='FPN', in_channels=[192] * 4, out_channels=256, num_outs=5),
    ],
)
"""


def test_detector_trains_and_is_evaluated(trained):
    """The same tools, a stock config of mmdet, with a backbone and a neck of ours."""
    folder, _ = trained
    (folder / 'detector.py').write_text(DETECTOR)
    call(folder, 'train.py', 'detector.py', '--sample')
    checkpoint = folder / 'work_dirs/detector_sample/iter_2.pth'
    options = ['--sample', '--tta', '--out', 'boxes.pkl']
    call(folder, 'test.py', 'detector.py', checkpoint, *options)
    assert (folder / 'boxes.pkl').stat().st_size > 0
    output = call(
        folder, 'test.py', 'detector.py', checkpoint, '--sample', '--boundary', check=False
    )
    assert 'evaluates no masks' in last_line(output)


def test_boundary_ap_of_a_detector_with_masks(trained):
    folder, _ = trained
    config = ROOT / 'configs/bixt/maskrcnn_bixt_ti_3x_coco.py'
    call(folder, 'train.py', config, '--sample')
    checkpoint = folder / 'work_dirs/maskrcnn_bixt_ti_3x_coco_sample/iter_2.pth'
    keep_all = ['model.test_cfg.rcnn.score_thr=0']  # hardly trained, it is sure of nothing
    output = call(folder, 'test.py', config, checkpoint, '--sample', '--boundary', options=keep_all)
    assert 'coco/segm_mAP: ' in output
    assert 'coco/boundary_mAP: ' in output
