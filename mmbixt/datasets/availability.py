"""Check that the files of a config's data sets exist, before anything is built."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mmbixt.config import type_name, within

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
    parts = {path: part for split in splits for path, part in parts_of(cfg, split)}
    absent = {path: part for path, part in parts.items() if _missing(part)}
    if not absent:
        return
    kinds = dict.fromkeys(str(part['type']) for part in absent.values())
    settings = ' and '.join(f'{path}.data_root' for path in absent)
    lines = [
        f'The dataset of this config ({", ".join(kinds)}) was not found. Missing:',
        *dict.fromkeys(f'  {path}' for part in absent.values() for path in _missing(part)),
        f'If it is in another place, make a link, or set {settings}.',
    ]
    if advice := dict.fromkeys(filter(None, map(_how_to_get, absent.values()))):
        lines += [*advice, 'To try the config on generated images instead, add --sample.']
    raise MissingDatasetError('\n'.join(lines))


def _how_to_get(dataset: Mapping[str, Any]) -> str | None:
    """Advice for a data set in the folder of our configs."""
    folder, how = _HOW_TO_GET.get(dataset['type'], ('', None))
    root = dataset.get('data_root')
    return how if not root or Path(root).is_relative_to(folder) else None


def parts_of(cfg: Mapping[str, Any], split: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The datasets of a split inside wrappers, with the names of their settings."""
    if dataset := within(cfg, f'{split}_dataloader', 'dataset'):
        yield from _named(dataset, f'{split}_dataloader.dataset')


def leaves(dataset: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The datasets inside wrappers (RepeatDataset, ConcatDataset ...)."""
    return (part for _, part in _named(dataset, ''))


def _named(dataset: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    parts = dataset.get('datasets')
    parts = parts if isinstance(parts, list | tuple) else ()
    inner = {f'datasets.{i}': part for i, part in enumerate(parts)}
    inner = inner or {'dataset': dataset.get('dataset')}
    if not all(isinstance(part, Mapping) for part in inner.values()):  # or names, of a project
        yield path, dataset
        return
    for name, part in inner.items():
        yield from _named(part, f'{path}.{name}')


def _missing(dataset: Mapping[str, Any]) -> list[Path]:
    return [path.absolute() for path in _paths(dataset) if not path.exists()]


def _paths(dataset: Mapping[str, Any]) -> list[Path]:
    """The local paths of a dataset; none for a remote one."""
    root = dataset.get('data_root') or ''
    if '://' in root or dataset.get('backend_args'):
        return []
    if str(dataset.get('type')).startswith('CIFAR') and dataset.get('download', True):
        return []  # it downloads itself
    prefix = dataset.get('data_prefix') or {}  # a string in mmpretrain
    if 'ImageNet' in type_name(dataset):  # its split is the name of a folder
        prefix = prefix or dataset.get('split')
    prefixes = prefix.values() if isinstance(prefix, Mapping) else [prefix]
    parts = [*prefixes, dataset.get('ann_file')]  # projects may have lists
    parts = [part for part in parts if part and isinstance(part, str)]
    paths = [Path(root, part) for part in parts if '://' not in part]
    return paths if parts or not root else [Path(root)]


def annotation_file(dataset: Mapping[str, Any]) -> Path:
    """The file of the labels, or the folder of the data set if there is none."""
    file = dataset.get('ann_file')
    return Path(dataset.get('data_root') or '', file if isinstance(file, str) else '')
