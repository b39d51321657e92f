"""Check that the files of a config's data sets exist, before anything is built."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_HOW_TO_GET = {  # of data sets in the folders of our configs
    'ADE20KDataset': (
        'data/ade',
        'ADE20K (SceneParse150) is one file, '
        'http://data.csail.mit.edu/places/ADEchallenge/ADEChallengeData2016.zip; unpack it into '
        'data/ade.',
    ),
    'CocoDataset': (
        'data/coco',
        'COCO 2017 is http://images.cocodataset.org/zips/train2017.zip, .../zips/val2017.zip and '
        '.../annotations/annotations_trainval2017.zip; unpack them into data/coco.',
    ),
    'ImageNet': (
        'data/imagenet',
        'ImageNet-1k (ILSVRC2012) is at https://image-net.org/download-images; put its images '
        'into data/imagenet/train/CLASS and data/imagenet/val/CLASS.',
    ),
}


class MissingDatasetError(FileNotFoundError):
    """The folders or files of a dataset are not where the config looks for them."""


def check_datasets(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> None:
    """Raise an error that names missing files of a data set, and says how to get it.

    Args:
        cfg: a config.
        splits: the splits to check: 'train', 'val', 'test'.
    """
    loaders = [cfg[f'{split}_dataloader'] for split in splits if cfg.get(f'{split}_dataloader')]
    for dataset in (d for loader in loaders for d in leaves(loader['dataset'])):
        missing = [f'  {path.absolute()}' for path in _paths(dataset) if not path.exists()]
        if not missing:
            continue
        kind = dataset['type']
        lines = [
            f'The dataset of this config ({kind}) was not found. Missing:',
            *missing,
            'If it is in another place, make a link, or set data_root of the datasets.',
        ]
        folder, how_to_get = _HOW_TO_GET.get(kind, ('', ''))
        root = dataset.get('data_root')
        if how_to_get and (not root or Path(root).is_relative_to(folder)):
            try_it = 'To try the config on generated images instead, add --sample.'
            lines += [how_to_get, try_it]
        raise MissingDatasetError('\n'.join(lines))


def leaves(dataset: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The datasets inside wrappers (RepeatDataset, ConcatDataset ...)."""
    inner = dataset.get('datasets') or [dataset.get('dataset')]
    if inner[0] is None:
        yield dataset
    else:
        for part in inner:
            yield from leaves(part)


def _paths(dataset: Mapping[str, Any]) -> list[Path]:
    """The local paths of a dataset; none for a remote one."""
    root = dataset.get('data_root') or ''
    if '://' in root or dataset.get('backend_args'):
        return []
    if str(dataset.get('type')).startswith('CIFAR') and dataset.get('download', True):
        return []  # it downloads itself
    # for mmpretrain's ImageNet the split is the name of a folder, and the prefix may be a string
    prefix = dataset.get('data_prefix') or dataset.get('split') or {}
    prefixes = prefix.values() if isinstance(prefix, Mapping) else [prefix]
    parts = [*prefixes, dataset.get('ann_file') or '']
    return [Path(root, part) for part in parts if part]
