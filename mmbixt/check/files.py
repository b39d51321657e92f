"""Files that a config names and that do not exist; checked before anything is built."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mmbixt.checkpoints.sources import SCHEMES, find
from mmbixt.config import ConfigError, all_dicts, data_sets, type_name

_HOW_TO_GET = {  # of data sets in the folders of mmbixt's configs
    'ADE20KDataset': 'ADE20K (SceneParse150) is one file, '
    'http://data.csail.mit.edu/places/ADEchallenge/ADEChallengeData2016.zip; unpack it into '
    'data/ade.',
    'CocoDataset': 'COCO 2017 is http://images.cocodataset.org/zips/train2017.zip, '
    '.../zips/val2017.zip and .../annotations/annotations_trainval2017.zip; unpack them into '
    'data/coco.',
    'ImageNet': 'ImageNet-1k (ILSVRC2012) is at https://image-net.org/download-images; put its '
    'images into data/imagenet/train/CLASS and data/imagenet/val/CLASS.',
}
_FOLDERS = ('data/ade', 'data/coco', 'data/imagenet')


def check_files(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> None:
    """Raise an error that names missing data and weights, with their settings.

    Args:
        cfg: a config.
        splits: whose data is used: 'train', 'val', 'test'.
    """
    problems = [*_missing_weights(cfg), *_missing_data(cfg, splits)]
    if problems:
        raise ConfigError('\n'.join(dict.fromkeys(problems)))


def _missing_data(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> Iterator[str]:
    advice = {}
    for path, dataset in (part for split in splits for part in data_sets(cfg, split)):
        for file in _paths(dataset):
            if not file.exists():
                yield f'{path} ({type_name(dataset)}): {file.absolute()} does not exist.'
                advice[f'If it is in another place, create a link, or set {path}.data_root.'] = None
                is_stock = str(dataset.get('data_root')).startswith(_FOLDERS)
                if is_stock and (how := _HOW_TO_GET.get(type_name(dataset))):
                    advice[f'{how} To try the config on generated images: --sample.'] = None
    yield from advice


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
    return [Path(root, part) for part in parts or filter(None, [root])]


def _missing_weights(cfg: Mapping[str, Any]) -> Iterator[str]:
    names = [(f'init_cfg of {type_name(node)}', part) for node, part in _initialised(cfg)]
    for setting, file in (*names, ('load_from', cfg.get('load_from'))):
        if not isinstance(file, str):
            continue
        if file.startswith(SCHEMES):
            find(file)  # an error for an unknown name
        elif '://' not in file and not Path(file).expanduser().exists():
            yield f'{setting}: the checkpoint {file} does not exist.'


def _initialised(cfg: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Any]]:
    for node in all_dicts(cfg.get('model')):
        init = node.get('init_cfg')
        if isinstance(init, Mapping) and init.get('type') == 'Pretrained':
            yield node, init.get('checkpoint')
