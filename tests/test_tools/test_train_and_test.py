"""Train, resume, evaluate; and the errors of the tools."""

import json
import logging
import os
import re
import runpy
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import cv2
import numpy as np
import pytest
import torch
from filelock import FileLock
from helpers import CONFIGS, official_state, only_in_zoo
from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.registry import MODELS
from running import NO_WORKERS, TWO_STEPS, fresh_mmengine, write_few_scenes
from torch import nn

from mmbixt.engine.other_runs import KeepOtherRunsHook

CONFIG = CONFIGS / 'bixt/semfpn_bixt_ti_ade20k.py'
BOXES = 'mmdet::retinanet/retinanet_r50_fpn_1x_coco.py'
MASKS = CONFIGS / 'bixt/maskrcnn_bixt_ti_3x_coco.py'
FLOAT16 = ('--cfg-options', 'optim_wrapper.dtype=float16')
TOOL = Path(__file__).parents[2] / 'tools/test.py'
RUN = Path('work_dirs/semfpn_bixt_ti_ade20k_sample')
LOST = 'model.backbone.init_cfg.checkpoint=lost.pth'
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
def folder(shared, within):
    """A folder with scenes and a training of two iterations. No test may change it: all workers of
    pytest-xdist use it at the same time."""
    folder = shared / 'trained'
    with FileLock(shared / 'trained.lock'):
        if not (folder / 'said.txt').exists():
            write_few_scenes(folder / 'data/sample')
            done = within('train.py', CONFIG, '--sample', '--cfg-options', *SHORT, cwd=folder)
            (folder / 'said.txt').write_text(done.said)
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
    assert 'BN instead of SyncBN' in said
    table = re.search(r'Learning rates before the schedule:\n.*\n +\S+ +[\d,]+  (.*)', said)
    assert table[1] == 'backbone, neck, decode_head'
    assert 'paramwise_options' not in said  # two lines for each weight
    assert 'Note: param_scheduler.0: the warm-up lasts 50 iterations, and training 2' in said
    assert f'Checkpoints will be saved to {work_dir}' in said
    assert (work_dir / 'iter_2.pth').is_file()
    records = [json.loads(s) for s in next(work_dir.glob('*/vis_data/scalars.json')).open()]
    assert [r['step'] for r in records if 'loss' in r] == [1, 2]
    assert any('mIoU' in r for r in records)


def test_resume_restores_optimizer_and_history(folder, run, tmp_path):
    """Even if last_checkpoint is empty and the latest checkpoint is truncated (a power cut).

    The file that the first run started from is not needed any more, also in the next test.
    """
    os.link(folder / RUN / 'iter_2.pth', tmp_path / 'iter_2.pth')
    content = (folder / RUN / 'iter_2.pth').read_bytes()
    (tmp_path / 'iter_4.pth').write_bytes(content[: len(content) // 2])
    (tmp_path / 'last_checkpoint').touch()
    arguments = CONFIG, '--resume', '--work-dir', tmp_path
    output = run('train.py', *arguments, options=['train_cfg.max_iters=3', LOST])
    assert 'backbone.init_cfg: lost.pth is missing, and not needed to resume.' in output
    log = next(tmp_path.glob('*/*.log')).read_text()
    assert f'--resume: {tmp_path / "iter_4.pth"} is empty or damaged' in log
    assert f'Load checkpoint from {tmp_path / "iter_2.pth"}' in output
    assert 'resumed epoch: 0, iter: 2' in output
    checkpoint = torch.load(tmp_path / 'iter_3.pth', weights_only=False)
    steps = {int(state['step']) for state in checkpoint['optimizer']['state'].values()}
    assert steps == {3}
    losses = checkpoint['message_hub']['log_scalars']['train/loss']
    assert len(losses.data[0]) == 3


def test_weights_below_adapters_are_read_again_when_a_run_is_resumed():
    """A checkpoint has only the adapters."""
    skip_lost_weights = runpy.run_path(TOOL.with_name('train.py'))['skip_lost_weights']
    lost = dict(type='Pretrained', checkpoint='lost.pth')
    bare, adapted = nn.Module(), nn.Module()
    bare.init_cfg, adapted.module = lost, nn.Module()
    adapted.module.init_cfg = lost
    adapted.__class__ = type('LoRAModel', (nn.Module,), {})
    for model in (nn.ModuleDict(dict(bare=bare, adapted=adapted)), adapted):
        skip_lost_weights(SimpleNamespace(model=model, logger=logging.getLogger()))
    assert bare.init_cfg is None
    assert adapted.module.init_cfg is lost


def test_resumed_runs_of_other_configs_are_exact(capsys):
    """The hook that resumed runs have is none of the config."""
    add_hooks = runpy.run_path(TOOL.with_name('train.py'))['add_hooks']
    runner = Mock(hooks=[KeepOtherRunsHook()])
    loader = dict(sampler=dict(type='DefaultSampler'))
    add_hooks(runner, Config(dict(train_cfg=dict(by_epoch=True), train_dataloader=loader)))
    added = [type(call.args[0]).__name__ for call in runner.register_hook.call_args_list]
    assert added == ['ExactResumeHook']
    assert not capsys.readouterr().out


def test_files_without_an_optimizer_are_not_resumed(folder, within, tmp_path):
    """As mmengine's best_*.pth."""
    content = torch.load(folder / RUN / 'iter_2.pth', weights_only=False)
    del content['optimizer']
    torch.save(content, tmp_path / 'best_mIoU_iter_2.pth')
    arguments = (
        CONFIG,
        '--sample',
        '--work-dir',
        tmp_path,
        '--resume',
        tmp_path / 'best_mIoU_iter_2.pth',
    )
    done = within('train.py', *arguments, cwd=folder, fails=True)
    assert 'best_mIoU_iter_2.pth has weights, but no training state' in done.stderr


def test_resume_stops_if_all_checkpoints_are_damaged(folder, within, tmp_path):
    (tmp_path / 'iter_4.pth').write_bytes(b'half')
    (tmp_path / 'last_checkpoint').write_text(str(tmp_path / 'iter_4.pth'))
    for option in (['--resume'], ['--cfg-options', 'resume=True']):
        arguments = CONFIG, '--sample', '--work-dir', tmp_path, *option
        done = within('train.py', *arguments, cwd=folder, fails=True)
        assert f'--resume: {tmp_path} has no complete checkpoint. ' in done.stderr
    assert 'Iter(train)' not in done.stdout


@only_in_zoo
def test_mixed_precision_without_a_gpu(run, tmp_path, monkeypatch):
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '')
    output = run('train.py', CONFIG, '--amp', '--work-dir', tmp_path)
    assert 'Mixed precision without a GPU: in bfloat16' in output
    assert 'mIoU: ' in output


def test_evaluation_and_predictions(folder, run, tmp_path):
    options = ['--out', tmp_path / 'maps', '--show-dir', tmp_path / 'pictures', '--boundary']
    arguments = CONFIG, folder / RUN / 'iter_2.pth', *options, '--work-dir', tmp_path
    without = ['default_hooks.visualization=None', 'visualizer=None']  # which --show-dir makes
    output = run('test.py', *arguments, options=[LOST, *without])
    assert 'mIoU: ' in output
    assert 'band3px/mIoU: ' in output
    maps = sorted((tmp_path / 'maps').glob('*.png'))
    assert len(maps) == 2
    assert cv2.imread(str(maps[0]), cv2.IMREAD_GRAYSCALE).shape == (192, 256)
    assert len(list((tmp_path / 'pictures').rglob('*.png'))) == 2
    with np.load(tmp_path / 'boundary.npz') as sums:
        assert sums['images'].shape == (2,)
        assert sums['all/true'].shape == (2, 150)


def test_files_of_one_name_are_refused():
    kind = runpy.run_path(TOOL.with_name('test.py'))['FileNamesHook']
    for paths, with_suffix, without in (
        (['a/1.jpg', 'b/1.jpg'], True, True),
        (['a/1.jpg', 'a/1.png'], False, True),
        (['a/1.jpg', 'a/1.jpg', None, ['b/1.jpg']], False, False),
    ):
        runner = Mock()
        parts = [BaseDataset(lazy_init=True) for _ in paths]
        for part, path in zip(parts, paths, strict=True):
            part.get_data_info, part.__class__ = Mock(return_value=dict(img_path=path)), OneImage
        runner.test_dataloader.dataset = SimpleNamespace(datasets=parts)
        for has_suffix, is_refused in ((True, with_suffix), (False, without)):
            context = pytest.raises(SystemExit) if is_refused else nullcontext()
            with context:
                kind(has_suffix).before_test(runner)


class OneImage(BaseDataset):
    def __len__(self):
        return 1


def test_mistakes_end_in_one_line(within, tmp_path, monkeypatch):
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '')
    write_few_scenes(tmp_path / 'data/sample', 1, 1)
    for arguments, message in (
        (['train.py', CONFIG], '--sample'),  # without data
        (['train.py', 'nowhere.py'], 'nowhere.py'),
        (['train.py', '--amp', MASKS, '--sample'], "which mmcv's NMS and RoIAlign"),
        (['train.py', '--amp', CONFIG, '--sample', *FLOAT16], 'in bfloat16; leave the dtype out'),
        (['test.py', CONFIG, 'nowhere.pth', '--sample'], 'FileNotFoundError: There is no check'),
        (['test.py', BOXES, 'x.pth', '--sample', '--boundary'], '--boundary needs masks'),
        (['test.py', MASKS, 'x.pth', '--sample', '--tta'], 'mmdet can merge boxes, but no masks'),
    ):
        done = within(*arguments, cwd=tmp_path, fails=True)
        assert message in done.stderr.strip().splitlines()[-1]


@only_in_zoo
def test_whole_model_of_the_authors_by_its_name(run, tmp_path, monkeypatch):
    """A file of their layout in the cache; with test-time augmentation."""
    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    path = tmp_path / 'hub/checkpoints/sem_fpn_xcit_tiny_12_p16.pth'
    path.parent.mkdir(parents=True)
    state = official_state('whole__sem_fpn_xcit_tiny_12_p16')
    torch.save(dict(meta={}, state_dict=state), path)
    config = CONFIGS / 'xcit/semfpn_xcit_t12_p16_ade20k.py'
    options = '--tta', '--work-dir', tmp_path / 'run'
    one = ['test_dataloader.dataset.indices=1']
    output = run('test.py', config, 'xcit://ade-semfpn-tiny12-p16', *options, options=one)
    assert 'The file is a whole model of the XCiT authors' in output
    assert 'do not match' not in output
    assert 'mIoU' in output
    assert '--tta: the sizes of each image are (256, 64), ' in output


SIZE = dict(type='Resize', scale=(480, 360))
OF_ADE = [(1024, 256), (2048, 512)]


@pytest.mark.parametrize(
    ('own', 'ratios', 'expected'),
    [
        (SIZE, [0.5, 1], [(240, 180), (480, 360)]),
        (dict(type='Resize', scale_factor=0.5), [0.5, 1], [0.25, 0.5]),
        (None, [0.5, 1], [0.5, 1.0]),
        (dict(type='ResizeShortestEdge', scale=300), [0.5, 1], SystemExit),
        (SIZE, [0.3, 1], OF_ADE),  # of the user: no multiples
        (SIZE, None, OF_ADE),
    ],
)
def test_scales_of_an_inherited_test_time_augmentation(own, ratios, expected, capsys):
    fit_scales = runpy.run_path(str(TOOL))['fit_scales']
    steps = [dict(type='Resize', scale=scale) for scale in OF_ADE]
    tta = [dict(type='TestTimeAug', transforms=[steps, []])]
    cfg = Config(dict(tta_pipeline=tta, img_ratios=ratios))
    test_pipeline = [dict(type='LoadImageFromFile'), *([own] if own else [])]
    if expected is SystemExit:
        with pytest.raises(SystemExit, match='is for the size of another data set'):
            fit_scales(cfg, test_pipeline)
        return
    fit_scales(cfg, test_pipeline)
    scaled = [x.get('scale', x.get('scale_factor')) for x in cfg.tta_pipeline[0].transforms[0]]
    assert scaled == expected
    assert f'the sizes of each image are {expected[0]}' in capsys.readouterr().out


def test_incomplete_weights_are_not_evaluated(folder, within, tmp_path):
    whole = torch.load(folder / RUN / 'iter_2.pth', weights_only=False)['state_dict']
    half = {key: value for key, value in whole.items() if key.startswith('backbone.')}
    torch.save(half, tmp_path / 'half.pth')
    arguments = CONFIG, tmp_path / 'half.pth', '--sample', '--work-dir', tmp_path / 'run'
    done = within('test.py', *arguments, '--cfg-options', *NO_WORKERS, cwd=folder, fails=True)
    assert 'CheckpointMismatchError: ' in done.stderr
    assert 'Traceback' not in done.stderr


DETECTOR = """
_base_ = 'mmdet::retinanet/retinanet_r50_fpn_1x_coco.py'
model = dict(
    backbone=dict(_delete_=True, type='mmbixt.BiXT', arch='tiny', out_indices=(3, 7, 11)),
    neck=[
        dict(
            type='mmbixt.FeaturePyramidAdapter',
            in_channels=192,
            in_strides=16,
            out_strides=(8, 16, 32),
        ),
        dict(type='FPN', in_channels=[192] * 3, out_channels=32, num_outs=5),
    ],
    bbox_head=dict(in_channels=32, feat_channels=32, stacked_convs=1),
)
"""


def test_detector_trains_and_is_evaluated(run, within, folder, tmp_path):
    """A stock config of mmdet with a backbone and a neck of ours."""
    config, boxes = tmp_path / 'detector.py', tmp_path / 'boxes.pkl'
    config.write_text(DETECTOR)
    wrong = config, 'x.pth', '--sample', '--unchecked', '--out', 'boxes'
    done = within('test.py', *wrong, cwd=folder, fails=True)
    assert '--out boxes: give a .pkl file' in done.stderr
    once = ['train_cfg.max_iters=1', 'test_dataloader.dataset.indices=1']
    (tmp_path / 'iter_2.pth').touch()
    output = run('train.py', config, '--work-dir', tmp_path, options=once)
    assert f'{tmp_path} has checkpoints of another run (iter_2.pth), which this run may' in output
    assert output.count('Hook that tools/train.py adds: mmbixt.ExactResumeHook') == 1
    assert 'mmbixt_exact_resume' in torch.load(tmp_path / 'iter_1.pth', weights_only=False)['meta']
    options = '--tta', '--out', boxes, '--work-dir', tmp_path, '--show-dir', tmp_path / 'drawn'
    low = [*once, 'model.test_cfg.score_thr=0']  # after one iteration
    output = run('test.py', config, tmp_path / 'iter_1.pth', *options, options=low)
    assert boxes.stat().st_size > 0
    assert len(list((tmp_path / 'drawn').iterdir())) == 1
    assert config.read_text() == DETECTOR  # mmengine writes the whole config into the work dir
    # of the training and of the evaluation
    written = sorted(path.stem for path in tmp_path.glob('detector_run*.py'))
    assert written == ['detector_run', 'detector_run1']


@only_in_zoo
def test_boundary_ap_of_a_detector_with_masks(run, tmp_path):
    config, weights = MASKS, tmp_path / 'masks.pth'
    with fresh_mmengine():
        model = MODELS.build({**Config.fromfile(config).model, '_scope_': 'mmdet'})
    torch.save(dict(state_dict=model.state_dict()), weights)
    # an untrained model has low scores
    options = ['model.test_cfg.rcnn.score_thr=0', 'test_dataloader.dataset.indices=1']
    arguments = config, weights, '--boundary', '--work-dir', tmp_path
    output = run('test.py', *arguments, options=options)
    assert 'coco/segm_mAP: ' in output
    assert 'coco/boundary_mAP: ' in output
