"""Run the tools in this process, which saves imports."""

import os
import runpy
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO

import cv2
import numpy as np
import pytest
import torch
from helpers import CONFIGS
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from running import fresh_mmengine

TOOLS = CONFIGS.parent / 'tools'


@dataclass
class Done:
    """Output of a tool."""

    stdout: str
    stderr: str

    @property
    def said(self):
        return self.stdout + self.stderr


@pytest.fixture(scope='session')
def within():
    """``within('analysis/compare.py', *arguments, cwd=folder)`` in this process.

    A tool elsewhere is called by its whole path. It must succeed; with ``fails`` it must fail, or
    with ``fails=None`` it may.
    """

    def within(tool, *arguments, cwd='.', fails=False):
        path, code, out, err = str(TOOLS / tool), None, StringIO(), StringIO()
        environment = dict(os.environ)
        with pytest.MonkeyPatch.context() as patch, chdir(cwd), fresh_mmengine():
            patch.setattr(sys, 'argv', [path, *map(str, arguments)])
            try:
                with redirect_stdout(out), redirect_stderr(err):
                    runpy.run_path(path, run_name='__main__')
            except SystemExit as end:
                code = end.code
            finally:
                os.environ.clear()
                os.environ.update(environment)
        error = err.getvalue()
        if isinstance(code, str):  # Python prints it and exits with 1
            code, error = 1, f'{error}{code}\n'
        assert fails is None or bool(code) == fails, error[-3000:]
        return Done(out.getvalue(), error)

    return within


SMALL_SEGMENTOR = f"""
_base_ = '{CONFIGS}/bixt/semfpn_bixt_ti_ade20k.py'
palette = [[0, 0, 255], [0, 9, 0], [9, 0, 0]]
pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(64, 64)),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
]
dataset = dict(
    _delete_=True,
    type='BaseSegDataset',
    data_root='data',
    data_prefix=dict(img_path='images', seg_map_path='labels'),
    metainfo=dict(classes=['sky', 'tree', 'car'], palette=palette),
    img_suffix='.jpg',
    reduce_zero_label=True,
    pipeline=pipeline,
)
val_dataloader = dict(num_workers=0, persistent_workers=False, dataset=dataset)
test_dataloader = val_dataloader
test_evaluator = [dict(type='mmbixt.BoundaryIoUMetric', sums_file='counts.npz')]
small = dict(_delete_=True, embed_dims=16, num_heads=2, depth=1)
model = dict(
    backbone=dict(init_cfg=None, arch=small, out_indices=(0,), num_latents=4),
    neck=dict(_delete_=True, type='mmseg.FPN', in_channels=[16], out_channels=16, num_outs=4),
    decode_head=dict(num_classes=3, in_channels=[16] * 4, channels=16, norm_cfg=dict(type='BN')),
)
"""


@pytest.fixture(scope='session')
def project(tmp_path_factory):
    """A folder with a config, five images and the weights of an untrained segmentor.

    The classes are 1 to 3 in the label files, as in ADE20K.
    """
    folder = tmp_path_factory.mktemp('user')
    (folder / 'mine.py').write_text(SMALL_SEGMENTOR)
    rng = np.random.default_rng(0)
    for part in ('images', 'labels'):
        (folder / 'data' / part).mkdir(parents=True)
    for i in range(5):
        labels = rng.integers(0, 3, (4, 5), np.uint8).repeat(12, 0).repeat(16, 1)
        cv2.imwrite(str(folder / f'data/images/scene_{i}.jpg'), labels * 80)
        cv2.imwrite(str(folder / f'data/labels/scene_{i}.png'), labels + 1)
    init_default_scope('mmseg')
    model = MODELS.build(Config.fromfile(folder / 'mine.py').model)
    torch.save(dict(state_dict=model.state_dict()), folder / 'mine.pth')
    return folder


@pytest.fixture
def in_project(project, monkeypatch):
    monkeypatch.chdir(project)
