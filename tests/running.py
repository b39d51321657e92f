"""Code shared by tests of whole runs: sample data, and mmengine as in a new process."""

import argparse
import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import pytest
import torch
from mmengine.config import Config, DictAction
from mmengine.dataset import pseudo_collate
from mmengine.logging import MMLogger
from mmengine.utils import ManagerMixin
from torch.multiprocessing import start_processes

from mmbixt.scenes.files import MANIFEST, write_scenes

# for --cfg-options
TWO_STEPS = ['train_cfg.max_iters=2', 'train_cfg.val_interval=2']
TWO_STEPS += ['default_hooks.checkpoint.interval=2']
NO_WORKERS = [
    f'{split}_dataloader.{key}'
    for split in ('train', 'val', 'test')
    for key in ('num_workers=0', 'persistent_workers=False')
]


def parse_options(options: str) -> dict:
    """The arguments of --cfg-options as a dict."""
    parser = argparse.ArgumentParser()
    parser.add_argument('--cfg-options', nargs='+', action=DictAction)
    return parser.parse_args(['--cfg-options', *shlex.split(options)]).cfg_options


@contextmanager
def fresh_mmengine() -> Iterator[None]:
    """Without the loggers, visualizers, default scopes ... of earlier runs in this process.

    Configs are written without yapf, which takes seconds of each run.
    """
    kinds = [ManagerMixin]
    for kind in kinds:  # the list grows while the loop runs
        kinds += kind.__subclasses__()
    with pytest.MonkeyPatch.context() as patch:
        for kind in kinds:
            patch.setattr(kind, '_instance_dict', type(kind._instance_dict)())
        for module in ('mmengine.config.config', 'yapf.yapflib.yapf_api'):
            # mmengine has a name of its own for it, the OneDL fork of it has none
            patch.setattr(f'{module}.FormatCode', unformatted, raising=False)
        try:
            yield
        finally:
            for logger in MMLogger._instance_dict.values():
                for handler in logger.handlers:
                    handler.close()


def unformatted(text: str, **_: object) -> tuple[str, bool]:
    return text, False


def in_two_processes(function: Callable, *arguments: Any, start_method: str = 'fork') -> None:
    """Call ``function(rank, *arguments)`` in two processes of a group, forked: imports are slow."""
    cv2.setNumThreads(1)  # OpenCV's threads do not survive a fork
    with TemporaryDirectory() as folder:
        start_processes(_join, (folder, function, arguments), nprocs=2, start_method=start_method)


def _join(rank: int, folder: str, function: Callable, arguments: tuple) -> None:
    store = torch.distributed.FileStore(f'{folder}/store', 2)
    torch.distributed.init_process_group('gloo', store=store, rank=rank, world_size=2)
    function(rank, *arguments)
    torch.distributed.destroy_process_group()


def make_loader(dataset, sampler: str, batch_size: int) -> dict:
    sampler = dict(type=sampler, shuffle=False)
    return dict(dataset=dataset, sampler=sampler, collate_fn=pseudo_collate, batch_size=batch_size)


def shorten(cfg: Config, folder: Path, steps: int) -> None:
    """Train some steps of two images, then validate, without other processes."""
    cfg.work_dir = str(folder)
    cfg.train_cfg.update(max_iters=steps, val_interval=steps)
    cfg.train_dataloader.batch_size = 2
    if cfg.default_scope == 'mmpretrain':  # its RepeatAugSampler takes multiples of 256 images
        cfg.train_dataloader.sampler = dict(type='InfiniteSampler')
    for split in ('train', 'val', 'test'):
        cfg[f'{split}_dataloader'].update(num_workers=0, persistent_workers=False)


def write_few_scenes(root: Path, train: int = 4, val: int = 3) -> Path:
    """Sample data with few scenes, which ``--sample`` accepts as complete; for speed."""
    manifest = write_scenes(root, train, val) / MANIFEST
    written = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**written, 'train': 256, 'val': 32}))
    return manifest.parent
