"""Read all images and labels of a config's data sets, before a long training.

Each is read and checked as in a run (mmbixt.SampleCheckHook): missing and damaged files, sizes and
orientations, ids of classes, boxes. All problems are listed; nothing is changed.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.registry import init_default_scope
from torch import nn
from torch.utils.data import DataLoader

from mmbixt.check.config import SPLITS, ConfigError
from mmbixt.check.data import ImageProblems, build_dataset
from mmbixt.check.names import explain
from mmbixt.check.structure import structure_problems
from mmbixt.cli import add_common_arguments, load_config, run
from mmbixt.config import within
from mmbixt.datasets.availability import check_datasets
from mmbixt.datasets.problems import built_leaves, unused_boxes
from mmbixt.progress import progress

SHOWN = 20  # most problems of a data set that are printed
IMAGES = {  # of data sets that consist of all images in their folders: one may be missing unnoticed
    'ADE20KDataset': dict(train=20_210, val=2_000),
    'ImageNet': dict(train=1_281_167, val=50_000),
}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='Example: python tools/check_dataset.py configs/bixt/semfpn_bixt_ti_ade20k.py',
    )
    add_common_arguments(parser)
    parser.add_argument(
        '--subset',
        action='store_true',
        help='a part of ADE20K or ImageNet: do not compare the number of images',
    )
    parser.add_argument(
        '--workers', type=int, default=os.cpu_count(), help='processes (default: all cores)'
    )
    parser.add_argument('--out', type=Path, metavar='FILE', help='write all problems to this file')
    args = parser.parse_args()
    if args.workers < 1:
        parser.error(f'--workers {args.workers}: must be at least 1')
    return args


def data_sets(cfg: Config) -> dict[str, Any]:
    """The data sets of training, validation and test, each one once."""
    if wrong := [*structure_problems(cfg, SPLITS)]:
        raise ConfigError('\n'.join(wrong))
    found: dict[str, Any] = {}
    for name in SPLITS:
        dataset = within(cfg, f'{name}_dataloader', 'dataset')
        if dataset and dataset not in found.values():
            found[name] = dataset
    return found


def problems_of(cfg: Config, name: str, args: argparse.Namespace) -> Iterator[str]:
    """The problems of all images of a data set; prints how many images it has."""
    check_datasets(cfg, (name,))
    try:
        dataset = build_dataset(cfg[f'{name}_dataloader']['dataset'], is_test=name == 'test')
    except Exception as error:  # raised by any class that the config names
        text = explain(error, cfg.get('default_scope'))
        raise ConfigError(f'{name}_dataloader.dataset: {text}') from error
    for part in built_leaves(dataset):
        kind, count = type(part).__name__, len(part)
        print(f'{name}: {count:,} images ({kind})', flush=True)
        expected = IMAGES.get(kind, {}).get(name, count)
        if count != expected and not (args.subset or args.sample):
            yield f'{count:,} images, not {expected:,} (if this is intended: --subset)'
        if text := unused_boxes(part):
            print(f'  {text}')
        images = ImageProblems(part, nn.Module())
        found = DataLoader(images, batch_size=None, num_workers=min(args.workers, count))
        yield from chain.from_iterable(progress(found, count))


def inspect(cfg: Config, name: str, args: argparse.Namespace) -> list[str]:
    """Check a data set and print the first problems; returns all."""
    problems = [*problems_of(cfg, name, args)]
    for problem in problems[:SHOWN]:
        print(f'  {problem}')
    if len(problems) > SHOWN:
        print(f'  ... and {len(problems) - SHOWN:,} more (all with --out FILE)')
    return problems


def main() -> None:
    args = parse_args()
    cfg = load_config(args, splits=())
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    names = data_sets(cfg)
    if not names:
        sys.exit(f'error: {args.config} has no data sets (train_dataloader, val_dataloader ...)')
    problems: dict[str, None] = {}  # each once: data sets may share images
    if args.out:
        args.out.write_text('')  # an error now, not after minutes
    for name in names:
        problems |= dict.fromkeys(inspect(cfg, name, args))
        if args.out:
            args.out.write_text(''.join(f'{problem}\n' for problem in problems))
    if problems:
        word = 'problem' if len(problems) == 1 else 'problems'
        sys.exit(
            f'{len(problems):,} {word}. Download missing and damaged files again; correct the rest.'
        )
    print('All images and labels can be read.')


if __name__ == '__main__':
    run(main)
