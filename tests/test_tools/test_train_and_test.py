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
RUN = 'work_dirs/semfpn_bixt_ti_ade20k_sample'
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


def test_run_says_what_it_changes_and_leaves_logs_and_checkpoints(trained):
    folder, output = trained
    assert all(f'\n  {subject}: ' in output for subject in ('data', 'sizes', 'schedule', 'norms'))
    work_dir = folder / RUN
    assert f'Checkpoints will be saved to {work_dir}' in output
    assert (work_dir / 'iter_2.pth').is_file()
    records = [json.loads(s) for s in next(work_dir.glob('*/vis_data/scalars.json')).open()]
    assert [r['step'] for r in records if 'loss' in r] == [1, 2]
    assert any('mIoU' in r for r in records)


def test_resume_goes_on_with_optimizer_and_history(trained):
    folder, _ = trained
    output = call(folder, 'train.py', CONFIG, '--sample', '--resume', iterations=4)
    assert 'resumed epoch: 0, iter: 2' in output
    checkpoint = torch.load(folder / RUN / 'iter_4.pth', weights_only=False)
    steps = {int(state['step']) for state in checkpoint['optimizer']['state'].values()}
    assert steps == {4}
    losses = checkpoint['message_hub']['log_scalars']['train/loss']
    assert len(losses.data[0]) == 4


@pytest.mark.parametrize('tta', [False, True])
def test_evaluation_and_predictions(trained, tta):
    folder, _ = trained
    checkpoint = folder / RUN / 'iter_2.pth'
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
    config, checkpoint = folder / RUN / 'semfpn_bixt_ti_ade20k.py', folder / RUN / 'iter_2.pth'
    assert 'mIoU: ' in call(folder, stock / 'test.py', config, checkpoint)
    command = [stock / 'train.py', config, '--work-dir', 'stock', '--resume']
    options = [f'load_from={checkpoint}', 'train_cfg.val_interval=3']
    output = call(folder, *command, iterations=3, options=options)
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


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['train.py', 'nowhere.py'], 'nowhere.py'),
        (['train.py', '--amp', CONFIG, '--sample'], '--amp needs a GPU'),
        (
            ['test.py', CONFIG, 'nowhere.pth', '--sample'],
            'FileNotFoundError: There is no checkpoint file at nowhere.pth.',
        ),
    ],
)
def test_mistakes_end_in_one_line(refused, arguments, message):
    assert message in last_line(refused(*arguments))


def test_sync_bn_on_a_cpu_is_refused(refused, tmp_path):
    for part in ('images', 'annotations'):
        for split in ('training', 'validation'):
            (tmp_path / f'data/ade/ADEChallengeData2016/{part}/{split}').mkdir(parents=True)
    assert 'SyncBN, which trains on GPUs only' in last_line(refused('train.py', CONFIG))


def test_whole_model_of_the_authors_by_its_name(trained, tmp_path, monkeypatch):
    """A file of their layout, as if it had been downloaded: nothing missing, nothing left over."""
    folder, _ = trained
    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    path = tmp_path / 'hub/checkpoints/sem_fpn_xcit_tiny_12_p16.pth'
    path.parent.mkdir(parents=True)
    state = official_state('whole__sem_fpn_xcit_tiny_12_p16')
    torch.save(dict(meta={}, state_dict=state), path)
    config = ROOT / 'configs/xcit/semfpn_xcit_t12_p16_ade20k.py'
    options = ['--sample', '--work-dir', tmp_path / 'run']
    output = call(folder, 'test.py', config, 'xcit://ade-semfpn-tiny12-p16', *options)
    assert 'The file is a whole model of the XCiT authors' in output
    assert 'do not match' not in output
    assert 'mIoU' in output
    # the backbone would fit another decoder, but half a model is not evaluated
    config = ROOT / 'configs/xcit/upernet_xcit_t12_p16_ade20k.py'
    output = call(folder, 'test.py', config, path, *options, check=False)
    assert 'CheckpointMismatchError: The checkpoint does not fit' in output
    assert 'Traceback' not in output
    assert 'mIoU:' not in output


def test_classification_checkpoint_is_not_for_test(trained, tmp_path):
    torch.save({'latents': torch.zeros(1, 64, 192)}, tmp_path / 'bixt.pth')
    output = call(trained[0], 'test.py', CONFIG, tmp_path / 'bixt.pth', '--sample', check=False)
    assert 'CheckpointMismatchError' in output
    assert 'init_cfg' in output


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
