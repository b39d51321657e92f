"""Time and memory of a training step of whole configs, relative to the stock Swin-T config.

A step is forward, loss, backward and optimizer on random images. Each measurement is a new process,
and the configs alternate, so that other load on the machine affects all of them equally.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import InstanceData, PixelData

from mmbixt.cli import read_config, run
from mmbixt.progress import progress

OBJECTS = 8  # in an image
CLASSES = 19  # no data set of ours has fewer than Cityscapes
STOCK = {
    'mmseg': 'mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py',
    'mmdet': 'mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py',
}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='Example: python tools/analysis/iteration_cost.py configs/xcit/semfpn_*_p16_*.py',
    )
    parser.add_argument('configs', nargs='+', metavar='CONFIG', help='all mmseg or all mmdet')
    parser.add_argument('--against', help="config to compare with (default: the stock Swin-T's)")
    parser.add_argument('--shape', nargs=2, type=int, default=(512, 512), metavar=('H', 'W'))
    parser.add_argument('--batch', type=int, default=2, help='images of a step (default: 2)')
    parser.add_argument('--rounds', type=int, default=3, help='processes per config (default: 3)')
    parser.add_argument('--steps', type=int, default=2, help='timed steps per process (default: 2)')
    parser.add_argument('--json', type=Path, help='also write all measurements to this file')
    parser.add_argument('--one', action='store_true', help=argparse.SUPPRESS)
    return parser.parse_args()


def random_labels(scope: str, size: tuple[int, int]) -> Any:
    """A data sample of mmseg, mmdet or mmpretrain for an image (H,W)."""
    meta = dict(img_shape=size, ori_shape=size, pad_shape=size, batch_input_shape=size)
    if scope == 'mmseg':
        from mmseg.structures import SegDataSample

        found = SegDataSample(metainfo=meta)
        found.gt_sem_seg = PixelData(data=torch.randint(CLASSES, (1, *size)))
    elif scope == 'mmpretrain':
        from mmpretrain.structures import DataSample

        found = DataSample(metainfo=meta).set_gt_label(torch.randint(CLASSES, (1,)))
    else:
        from mmdet.structures import DetDataSample
        from mmdet.structures.mask import BitmapMasks

        found = DetDataSample(metainfo=meta | dict(scale_factor=(1.0, 1.0)))
        middle = torch.tensor([size[1] / 2, size[0] / 2])
        first, last = torch.rand(2, OBJECTS, 2) * middle  # corners in two quarters of the image
        boxes = torch.cat([first, last + middle], 1)
        masks = BitmapMasks(np.ones((OBJECTS, *size), np.uint8), *size)
        classes = torch.randint(CLASSES, (OBJECTS,))
        found.gt_instances = InstanceData(bboxes=boxes, labels=classes, masks=masks)
        found.ignored_instances = InstanceData(bboxes=boxes[:0], labels=classes[:0])
    return found


def resident(field: str) -> int:
    """Resident memory of the process in bytes: current ('VmRSS') or peak ('VmHWM')."""
    with open('/proc/self/status') as file:
        line = next(line for line in file if line.startswith(field))
    return int(line.split()[1]) * 1024


def measure(args: argparse.Namespace) -> dict[str, float]:
    """Seconds of a step, and bytes of model, gradients, optimizer state and activations."""
    cfg = read_config(args.configs[0])
    init_default_scope(cfg.default_scope)
    if 'size' in cfg.model.get('data_preprocessor', {}):  # crops are padded to it
        cfg.model.data_preprocessor.size = tuple(args.shape)
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    peak = torch.cuda.max_memory_allocated if device == 'cuda' else partial(resident, 'VmHWM')
    torch.zeros(1, device=device)
    images = torch.randint(256, (args.batch, 3, *args.shape), dtype=torch.uint8)
    labels = [random_labels(cfg.default_scope, tuple(args.shape)) for _ in images]
    data = dict(inputs=list(images), data_samples=labels)
    before = peak()
    model = MODELS.build(cfg.model).to(device).train()
    if device == 'cpu':
        model = revert_sync_batchnorm(model)
    optim_wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    seconds = []
    for _ in range(1 + args.steps):
        start = time.perf_counter()
        model.train_step(data, optim_wrapper)
        if device == 'cuda':
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return dict(seconds=median(seconds[1:]), bytes=peak() - before)


def measure_apart(config: str, args: argparse.Namespace) -> dict[str, float]:
    """:func:`measure` of a config in a new process."""
    command = [sys.executable, '-W', 'ignore', __file__, config, '--one']
    command += ['--shape', *map(str, args.shape), '--batch', str(args.batch)]
    done = subprocess.run(
        [*command, '--steps', str(args.steps)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f'\n{config} failed:\n{done.stderr[-3000:]}')
    return json.loads(done.stdout.splitlines()[-1])


def make_table(found: dict[str, list[dict]], against: str) -> str:
    """A Markdown table of the medians, over the rounds, of the ratios."""
    lines = ['| config | time | memory |', '|---|---:|---:|']
    for config in found:
        rounds = list(zip(found[config], found[against], strict=True))
        seconds, memory = (
            median(a[key] / b[key] for a, b in rounds) for key in ('seconds', 'bytes')
        )
        lines.append(f'| `{Path(config.split("::")[-1]).stem}` | {seconds:.2f} | {memory:.2f} |')
    return '\n'.join(lines)


def main() -> None:
    args = parse_args()
    if args.one:
        print(json.dumps(measure(args)))
        return
    scopes = {read_config(config).default_scope for config in args.configs}
    if len(scopes) > 1:
        raise SystemExit('Configs of mmseg and of mmdet cannot be compared: give one kind.')
    against = args.against or STOCK[scopes.pop()]
    turns = [against, *args.configs] * args.rounds
    found = defaultdict(list)
    for config in progress(turns):
        found[config].append(measure_apart(config, args))
    print(f'A training step of {args.batch} x {args.shape[0]} x {args.shape[1]} pixels,')
    print(f'{torch.get_num_threads()} threads, relative to {against}:\n')
    print(make_table(found, against))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == '__main__':
    run(main)
