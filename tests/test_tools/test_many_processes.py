"""Two processes on a CPU in place of two GPUs: DDP, FSDP, torchrun and Slurm."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import CONFIGS
from running import write_few_scenes

from mmbixt.checkpoints.loader import load

pytestmark = pytest.mark.zoo
TOOLS = CONFIGS.parent / 'tools'
# Without randomness and batch norms, and with a learning rate at which rounding errors do not grow.
SEGMENTOR = f"""
_base_ = '{CONFIGS}/bixt/linear_bixt_ti_ade20k.py'
pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='Resize', scale=(64, 64), keep_ratio=False),
    dict(type='PackSegInputs'),
]
train_cfg = dict(max_iters=3, val_interval=3)
optim_wrapper = dict(
    _delete_=True, optimizer=dict(type='SGD', lr=0.1, momentum=0.9), clip_grad=dict(max_norm=0.5)
)
param_scheduler = None
randomness = dict(seed=1)
in_this_process = dict(num_workers=0, persistent_workers=False)
train_dataloader = dict(batch_size=1, dataset=dict(pipeline=pipeline), **in_this_process)
val_dataloader = dict(in_this_process, batch_size=1)
test_dataloader = dict(in_this_process, batch_size=1)
default_hooks = dict(checkpoint=dict(interval=1, save_best=None, max_keep_ckpts=9))
small = dict(_delete_=True, embed_dims=16, num_heads=2, depth=4)
model = dict(
    data_preprocessor=dict(size=(64, 64)),
    backbone=dict(arch=small, out_indices=(3,), drop_path_rate=0.0, init_cfg=None),
    decode_head=dict(in_channels=16, dropout_ratio=0.0),
)
"""
FSDP = """
_base_ = './segmentor.py'
runner_type = 'FlexibleRunner'
strategy = dict(type='mmbixt.FSDPStrategy')
load_from = 'work_dirs/alone/iter_1.pth'
# large, so that a weight in the wrong group differs
optim_wrapper = dict(
    optimizer=dict(weight_decay=0.2),
    constructor='mmbixt.FewGroupsConstructor',
    paramwise_cfg=dict(decay_rate=0.5),
)
train_cfg = dict(val_interval=2)
default_hooks = dict(checkpoint=dict(save_best='mIoU'))  # writes iter_2.pth again
"""
SRUN = """#!/usr/bin/env bash
while [[ $1 == --* ]]; do
    [[ $1 == --ntasks=* ]] && export WORLD_SIZE=${1#*=} MASTER_ADDR=127.0.0.1
    shift
done
for ((i = 1; i < WORLD_SIZE; i++)); do RANK=$i "$@" & done
RANK=0 "$@" && wait
"""


def start(folder, tool, *arguments):
    """Run a shell script of the tools in a folder; returns its output."""
    with socket.create_server(('127.0.0.1', 0)) as server:
        port = str(server.getsockname()[1])  # a free one
    path = f'{folder / "bin"}:{Path(sys.executable).parent}:{os.environ["PATH"]}'
    variables = dict(PORT=port, MASTER_PORT=port, GPUS='2', PATH=path, CUDA_VISIBLE_DEVICES='')
    variables['OMP_NUM_THREADS'] = '1'  # as torchrun sets it; the bits differ with the number
    done = subprocess.run(
        [str(TOOLS / tool), *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        timeout=300,
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-4000:]
    return output


@pytest.fixture(scope='module')
def folder(tmp_path_factory, within):
    """With configs, a few scenes, and the weights that one process trained with both batches."""
    folder = tmp_path_factory.mktemp('many')
    (folder / 'segmentor.py').write_text(SEGMENTOR)
    (folder / 'fsdp.py').write_text(FSDP)
    write_few_scenes(folder / 'data')
    (folder / 'bin').mkdir()
    (folder / 'bin/srun').write_text(SRUN)
    (folder / 'bin/srun').chmod(0o755)
    train(within, folder, 'segmentor', 'alone')
    return folder


def train(within, folder, name, run):
    """In this process, with the images of two."""
    options = ['train_dataloader.batch_size=2', 'runner_type=Runner']
    arguments = f'{name}.py', '--work-dir', f'work_dirs/{run}', '--cfg-options', *options
    within('train.py', *arguments, cwd=folder)


def state(path):
    checkpoint = load(str(path))
    return checkpoint['state_dict'], checkpoint['optimizer']['state']


def groups(path):
    """The settings of the groups of parameters, and how many each has."""
    saved = load(str(path))['optimizer']['param_groups']
    return [{**group, 'params': len(group['params'])} for group in saved]


def assert_trained_alike(runs, several, one):
    two, alone, first = (
        state(runs / run)[0]
        for run in (f'{several}/iter_3.pth', f'{one}/iter_3.pth', f'{one}/iter_1.pth')
    )
    assert two.keys() == alone.keys()
    for key, expected in alone.items():
        step = (expected - first[key]).abs().max()
        scale = torch.maximum(step, 1e-2 * expected.abs().max())
        assert (two[key] - expected).abs().max() <= 1e-3 * scale, key
    assert any(not torch.equal(alone[key], first[key]) for key in alone)


def test_two_processes_train_as_one_and_slurm_resumes(folder):
    """Each step has the same images; the resumed run has the same bits."""
    start(folder, 'dist_train.sh', 'segmentor.py', '2')
    runs = folder / 'work_dirs'
    assert_trained_alike(runs, 'segmentor', 'alone')
    options = '--resume', 'work_dirs/segmentor/iter_2.pth', '--work-dir', 'work_dirs/resumed'
    said = start(folder, 'slurm_train.sh', 'partition', 'job', 'segmentor.py', *options)
    assert 'resumed epoch: 0, iter: 2' in said
    whole, resumed = (state(runs / f'{x}/iter_3.pth') for x in ('segmentor', 'resumed'))
    torch.testing.assert_close(resumed, whole, rtol=0, atol=0)


def test_fsdp_trains_as_one_process_is_resumed_and_evaluated(folder, within):
    """With an odd number of images; also evaluated by one process without FSDP."""
    start(folder, 'dist_train.sh', 'fsdp.py', '2')
    runs, last = folder / 'work_dirs', 'work_dirs/fsdp/iter_3.pth'
    train(within, folder, 'fsdp', 'fsdp_alone')
    assert_trained_alike(runs, 'fsdp', 'fsdp_alone')
    assert groups(runs / 'fsdp/iter_3.pth') == groups(runs / 'fsdp_alone/iter_3.pth')
    options = '--resume', 'work_dirs/fsdp/iter_2.pth', '--work-dir', 'work_dirs/fsdp_resumed'
    start(folder, 'dist_train.sh', 'fsdp.py', '2', *options)
    whole, resumed = (state(runs / f'{x}/iter_3.pth') for x in ('fsdp', 'fsdp_resumed'))
    torch.testing.assert_close(resumed, whole, rtol=0, atol=0)
    other = '--resume', 'work_dirs/fsdp_alone/iter_2.pth', '--work-dir', 'work_dirs/fsdp_goes_on'
    start(folder, 'dist_train.sh', 'fsdp.py', '2', *other)
    assert_trained_alike(runs, 'fsdp_goes_on', 'fsdp_alone')  # with its momentum
    said = start(folder, 'dist_test.sh', 'fsdp.py', last, '2')
    alone = within('test.py', 'fsdp.py', last, '--cfg-options', 'runner_type=Runner', cwd=folder)
    score = re.compile(r'Iter\(test\).*(aAcc: \S+  mIoU: \S+  mAcc: \S+)')
    assert score.search(said)[1] == score.search(alone.said)[1]
