"""Two processes on a CPU in place of two GPUs: DDP, FSDP, torchrun and Slurm."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from helpers import CONFIGS, only_in_zoo
from running import write_few_scenes

from mmbixt.checkpoints.loader import load

pytestmark = only_in_zoo
TOOLS, TESTS = CONFIGS.parent / 'tools', CONFIGS.parent / 'tests'
# Without randomness and batch norms, and with a learning rate at which rounding errors do not grow.
COMMON = """
train_cfg = dict(
    _delete_=True, type='IterBasedTrainLoop', max_iters=3, val_interval=3
)
optim_wrapper = dict(
    _delete_=True, optimizer=dict(type='SGD', lr=0.1, momentum=0.9), clip_grad=dict(max_norm=0.5)
)
param_scheduler = None
custom_hooks = None
randomness = dict(seed=1)
in_this_process = dict(num_workers=0, persistent_workers=False)
train_dataloader = dict(
    batch_size=1, dataset=dict(pipeline=pipeline), sampler=dict(shuffle=True), **in_this_process
)
val_dataloader = dict(in_this_process, batch_size=1)
test_dataloader = dict(in_this_process, batch_size=1)
default_hooks = dict(checkpoint=dict(interval=1, by_epoch=False, save_best=None, max_keep_ckpts=9))
log_processor = dict(by_epoch=False)
small = dict(embed_dims=16, num_heads=2, depth=4)
adapter = dict(
    type='mmbixt.FeaturePyramidAdapter', in_channels=16, in_strides=16,
    norm_cfg=dict(type='GN', num_groups=4),
)
"""
SEGMENTOR = f"""
_base_ = '{CONFIGS}/bixt/linear_bixt_ti_ade20k.py'
pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='Resize', scale=(64, 64), keep_ratio=False),
    dict(type='PackSegInputs'),
]
{COMMON}
model = dict(
    data_preprocessor=dict(size=(64, 64)),
    backbone=dict(
        arch=dict(_delete_=True, **small), out_indices=(3,), drop_path_rate=0.0, init_cfg=None
    ),
    decode_head=dict(in_channels=16, dropout_ratio=0.0),
)
"""
DETECTOR = f"""
_base_ = '{CONFIGS}/biformer/retinanet_biformer_t_1x_coco.py'
pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='Resize', scale=(64, 64), keep_ratio=False),
    dict(type='PackDetInputs'),
]
{COMMON}
train_dataloader['dataset']['ann_file'] = 'annotations/alike.json'
model = dict(
    backbone=dict(_delete_=True, type='mmbixt.BiXT', arch=small, out_indices=(1, 2, 3)),
    neck=[
        dict(adapter, out_strides=(8, 16, 32)),
        dict(type='FPN', in_channels=[16] * 3, out_channels=16, num_outs=5),
    ],
    bbox_head=dict(in_channels=16, feat_channels=16, stacked_convs=1),
)
"""
CLASSIFIER = f"""
_base_ = '{CONFIGS}/bixt/bixt_ti_l64_p16_in1k.py'
pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(64, 64)),
    dict(type='PackInputs'),
]
{COMMON}
model = dict(
    backbone=dict(arch=dict(_delete_=True, **small), depth=4, drop_path_rate=0.0),
    neck=dict(in_channels=16),
    head=dict(in_channels=16),
    train_cfg=dict(augments=None),
)
"""
SHARED_OUT = """
_base_ = './segmentor.py'
runner_type = 'FlexibleRunner'
strategy = dict(type='mmbixt.FSDPStrategy')
load_from = 'work_dirs/segmentor/iter_1.pth'
train_cfg = dict(val_interval=2)
default_hooks = dict(checkpoint=dict(save_best='mIoU'))  # writes iter_2.pth again
"""
KILLED = """
_base_ = './segmentor.py'
custom_imports = dict(imports=['mmbixt.registry', 'many_processes'], allow_failed_imports=False)
custom_hooks = [dict(type='mmengine.KillHook')]
"""
SOURCES = dict(
    segmentor=SEGMENTOR, detector=DETECTOR, classifier=CLASSIFIER, fsdp=SHARED_OUT, killed=KILLED
)
SRUN = """#!/usr/bin/env bash
while [[ $1 == --* ]]; do
    [[ $1 == --ntasks=* ]] && export SLURM_NTASKS=${1#*=} SLURM_NODELIST=localhost
    shift
done
for ((i = 1; i < SLURM_NTASKS; i++)); do
    SLURM_PROCID=$i SLURM_LOCALID=$i "$@" &
done
SLURM_PROCID=0 SLURM_LOCALID=0 "$@" && wait
"""


def start(folder, *command, succeeds=True):
    """Run a command in a folder; returns its output."""
    with socket.create_server(('127.0.0.1', 0)) as server:
        port = str(server.getsockname()[1])  # a free one
    path = f'{folder / "bin"}:{Path(sys.executable).parent}:{os.environ["PATH"]}'
    python = f'{TESTS}:{os.environ.get("PYTHONPATH", "")}'
    variables = dict(PORT=port, MASTER_PORT=port, GPUS='2', PATH=path, PYTHONPATH=python)
    variables['OMP_NUM_THREADS'] = '1'  # as torchrun sets it; the bits differ with the number
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**os.environ, **variables, 'CUDA_VISIBLE_DEVICES': ''},
        timeout=300,
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout + done.stderr
    assert (done.returncode == 0) == succeeds, output[-4000:]
    return output


TRAIN, TEST = str(TOOLS / 'train.py'), str(TOOLS / 'test.py')
RESUMED = ['--resume', 'work_dirs/fsdp/iter_2.pth', '--work-dir', 'work_dirs/resumed']
LAST = 'work_dirs/fsdp/iter_3.pth'
COMMANDS = [
    *([TRAIN, f'{name}.py'] for name in ('segmentor', 'detector', 'classifier', 'fsdp')),
    [TRAIN, 'fsdp.py', *RESUMED],
    [TEST, 'fsdp.py', LAST],
]


@pytest.fixture(scope='session')
def folder(shared):
    """A folder in which two processes have run all commands; for all workers of pytest-xdist."""
    folder = shared / 'many'
    with FileLock(shared / 'many.lock'):
        if not (folder / 'said.txt').exists():
            prepare(folder)
            said = start(folder, 'tools/dist_train.sh', 'commands.json', '2')
            (folder / 'said.txt').write_text(said)
    return folder


def prepare(folder):
    """Write all configs, four training images, three validation images and the commands."""
    folder.mkdir()
    for name, source in SOURCES.items():
        (folder / f'{name}.py').write_text(source)
    annotations = write_few_scenes(folder / 'data') / 'coco/annotations'
    # RetinaNet divides by the number of positive anchors of a process: give all images the same
    content = json.loads((annotations / 'instances_train2017.json').read_text())
    first = content['images'][0]['id']
    objects = [x for x in content['annotations'] if x['image_id'] == first]
    content['annotations'] = [
        {**x, 'image_id': image['id'], 'id': 1000 * i + x['id']}
        for i, image in enumerate(content['images'])
        for x in objects
    ]
    (annotations / 'alike.json').write_text(json.dumps(content))
    (folder / 'bin').mkdir()
    for name, content in (('srun', SRUN), ('scontrol', '#!/bin/sh\necho localhost\n')):
        (folder / 'bin' / name).write_text(content)
        (folder / 'bin' / name).chmod(0o755)
    commands = [[*command, '--launcher', 'pytorch'] for command in COMMANDS]
    (folder / 'commands.json').write_text(json.dumps(commands))
    (folder / 'tools').mkdir()
    shutil.copy(TOOLS / 'dist_train.sh', folder / 'tools')
    shutil.copy(TESTS / 'many_processes.py', folder / 'tools/train.py')


def test_the_report_of_torchrun_ends_with_our_message(tmp_path):
    said = start(tmp_path, TOOLS / 'dist_train.sh', 'absent.py', '2', succeeds=False)
    assert 'FileNotFoundError: There is no file absent.py' in said[-400:]


def state(path):
    checkpoint = load(str(path))
    return checkpoint['state_dict'], checkpoint['optimizer']['state']


@pytest.mark.parametrize('name', ['segmentor', 'detector', 'classifier', 'fsdp'])
def test_two_processes_train_as_one(folder, within, name):
    """Each step has the same images."""
    options = ['train_dataloader.batch_size=2', 'runner_type=Runner']
    arguments = f'{name}.py', '--work-dir', f'work_dirs/{name}_alone', '--cfg-options', *options
    within('train.py', *arguments, cwd=folder)
    runs = folder / 'work_dirs'
    two, alone, start = (
        load(str(runs / x))['state_dict']
        for x in (f'{name}/iter_3.pth', f'{name}_alone/iter_3.pth', f'{name}_alone/iter_1.pth')
    )
    assert two.keys() == alone.keys()
    for key, expected in alone.items():
        step = (expected - start[key]).abs().max()
        scale = torch.maximum(step, 1e-2 * expected.abs().max())
        assert (two[key] - expected).abs().max() <= 1e-3 * scale, key
    assert any(not torch.equal(alone[key], start[key]) for key in alone)


def test_fsdp_is_resumed_and_evaluated(folder, within):
    """With an odd number of images; also evaluated by one process without FSDP."""
    first, second = (state(folder / f'work_dirs/{x}/iter_3.pth') for x in ('fsdp', 'resumed'))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    arguments = 'fsdp.py', LAST, '--cfg-options', 'runner_type=Runner'
    alone = within('test.py', *arguments, cwd=folder)
    score = re.compile(r'Iter\(test\).*(aAcc: \S+  mIoU: \S+  mAcc: \S+)')
    said = (folder / 'said.txt').read_text()
    assert score.search(said)[1] == score.search(alone.said)[1]


def test_a_killed_process_ends_the_others_and_slurm_resumes(folder):
    """The weights are those of a run without interruption."""
    output = start(folder, TOOLS / 'dist_train.sh', 'killed.py', '2', succeeds=False)
    assert 'Signal 9 (SIGKILL)' in output
    saved = folder / 'work_dirs/killed'
    assert not (saved / 'iter_3.pth').exists()
    options = 'segmentor.py', '--resume', '--work-dir', saved
    output = start(folder, TOOLS / 'slurm_train.sh', 'partition', 'job', *options)
    assert 'resumed epoch: 0, iter: ' in output
    whole = state(folder / 'work_dirs/segmentor/iter_3.pth')
    torch.testing.assert_close(state(saved / 'iter_3.pth'), whole, rtol=0, atol=0)
