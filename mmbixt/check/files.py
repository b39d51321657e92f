"""Files that a config names and that do not exist, found before anything is built."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mmbixt.checkpoints.sources import SCHEMES, find
from mmbixt.config import ConfigError, all_dicts, data_sets, type_name

# folders of mmbixt's configs
_STOCK = ('data/ade', 'data/coco', 'data/imagenet')


def check_files(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> None:
    """Raise an error that names missing weights, and missing data of 'train', 'val' or 'test'."""
    problems = [*_missing_weights(cfg), *_missing_data(cfg, splits)]
    if problems:
        raise ConfigError('\n'.join(dict.fromkeys(problems)))


def _missing_data(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> Iterator[str]:
    for path, dataset in (part for split in splits for part in data_sets(cfg, split)):
        missing = [file.absolute() for file in _paths(dataset) if not file.exists()]
        yield from (f'{path} ({type_name(dataset)}): {file} does not exist.' for file in missing)
        if missing:
            yield f'If it is in another place, make a link, or set {path}.data_root.'
        is_stock = 'sample_dataset' in cfg or str(dataset.get('data_root')).startswith(_STOCK)
        if missing and is_stock:
            yield 'docs/datasets.md says how to get it; --sample tries the config without it.'


def _paths(dataset: Mapping[str, Any]) -> list[Path]:
    """The local files and folders of a data set; none for a remote one."""
    root = dataset.get('data_root') or ''
    is_remote = '://' in root or dataset.get('backend_args')
    if is_remote or type_name(dataset).startswith('CIFAR'):  # CIFAR is downloaded
        return []
    prefix = dataset.get('data_prefix') or {}  # a string in mmpretrain
    if type_name(dataset) == 'ImageNet':  # its split is the name of a folder
        prefix = prefix or dataset.get('split')
    parts = [*prefix.values()] if isinstance(prefix, Mapping) else [prefix]
    parts = [part for part in (*parts, dataset.get('ann_file')) if part and isinstance(part, str)]
    return [Path(root, part) for part in parts or ([''] if root else [])]


def _missing_weights(cfg: Mapping[str, Any]) -> Iterator[str]:
    files = [('load_from', cfg.get('load_from'))]
    for node in all_dicts(cfg.get('model')):
        init = node.get('init_cfg')
        if isinstance(init, Mapping) and init.get('type') == 'Pretrained':
            files.append((f'init_cfg of {node.get("type")}', init.get('checkpoint')))
    for setting, file in files:
        if isinstance(file, str) and file.startswith(SCHEMES):
            find(file)  # an error for an unknown name
        elif isinstance(file, str) and '://' not in file and not Path(file).expanduser().exists():
            yield f'{setting}: the checkpoint {file} does not exist.'
