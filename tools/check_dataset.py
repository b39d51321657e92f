"""Read all images and labels of a config's data sets, before a long training.

They are loaded and checked as in training (mmbixt.CheckSample): missing and damaged files, sizes,
orientations, ids of classes. All problems are listed; no file is changed.
"""

import argparse
import os
import sys
from itertools import chain
from pathlib import Path

from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, init_default_scope
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

from mmbixt.check.mistakes import classes_of, dataset_problems, leaves
from mmbixt.check.sample import CheckSample
from mmbixt.cli import add_common_arguments, load_config, run
from mmbixt.config import within

SHOWN = 20  # most problems of a data set that are printed


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='Example: python tools/check_dataset.py configs/bixt/semfpn_bixt_ti_ade20k.py',
    )
    add_common_arguments(parser)
    add = parser.add_argument
    add('--workers', type=int, default=os.cpu_count(), help='processes (default: all cores)')
    add('--out', type=Path, metavar='FILE', help='write all problems to this file')
    return parser.parse_args()


class Problems(Dataset):
    """The problems of each image of a data set (none or one), with the names of its files."""

    def __init__(self, dataset: BaseDataset) -> None:
        self.dataset = dataset
        pipeline = dataset.pipeline.transforms
        self.steps = [x for x in pipeline if type(x).__name__.startswith('Load')]
        checks = [x for x in pipeline if isinstance(x, CheckSample)]
        # only mmseg's data sets have labels of pixels
        count = len(classes_of(dataset)) if hasattr(dataset, 'reduce_zero_label') else None
        ignored = getattr(dataset, 'ignore_index', 255)
        self.steps += checks or [CheckSample(count or None, ignored)]

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> list[str]:
        results = self.dataset.get_data_info(index)
        files = [results[key] for key in ('img_path', 'seg_map_path') if results.get(key)]
        try:
            for step in self.steps:
                results = step(results)
        except Exception as error:  # decoders raise many types of errors for damaged files
            return [f'{", ".join(map(str, files))}: {type(error).__name__}: {error}']
        return []


def problems_of(dataset: BaseDataset, workers: int) -> list[str]:
    """The problems of a data set and of all its images."""
    problems = [*dataset_problems(dataset)]
    if type(dataset).__name__ == 'CustomDataset':  # of mmpretrain, for one's own classes
        found = {*dataset.get_gt_labels().tolist()}
        names = [name for i, name in enumerate(dataset.CLASSES or ()) if i not in found]
        problems += [f'{name}: no image has this class' for name in names]
    images = Problems(dataset)
    loader = DataLoader(images, batch_size=None, num_workers=min(workers, len(images)))
    return [*problems, *chain.from_iterable(tqdm(loader, disable=None))]


def main() -> None:
    args = parse_args()
    cfg = load_config(args)
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    configs = []  # each data set once
    problems: dict[str, None] = {}  # each once: data sets may share images
    for split in ('train', 'val', 'test'):
        config = within(cfg, f'{split}_dataloader', 'dataset')
        if not config or config in configs:
            continue
        configs.append(config)
        for dataset in leaves(DATASETS.build(config)):
            print(f'{split}: {len(dataset):,} images ({type(dataset).__name__})', flush=True)
            new = problems_of(dataset, args.workers)
            for problem in new[:SHOWN]:
                print(f'  {problem}', flush=True)
            if len(new) > SHOWN:
                print(f'  ... and {len(new) - SHOWN:,} more (all with --out FILE)')
            problems |= dict.fromkeys(new)
    if args.out:
        args.out.write_text(''.join(f'{problem}\n' for problem in problems))
    if problems:
        sys.exit(f'Problems: {len(problems):,}. Download damaged files again; correct the others.')
    print('All images and labels can be read.')


if __name__ == '__main__':
    run(main)
