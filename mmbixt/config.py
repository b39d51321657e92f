"""Reading configs and walking through them."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict
from mmengine.config.utils import MODULE2PACKAGE

from mmbixt.errors import UserError, near_matches

# Lets mmengine resolve `_base_ = 'mmbixt::bixt/...'`: it finds no distribution 'mmbixt.version' and
# uses the folder of this module. (For editable installs the location of a distribution is wrong.)
MODULE2PACKAGE['mmbixt'] = 'mmbixt.version'

# The OneDL fork's mmengine looks for `mmseg::...` in OpenMMLab's distribution, and its hub would
# also install OpenMMLab's distribution. The name of the module works for both.
with suppress(PackageNotFoundError):
    distribution('onedl-mmsegmentation')
    MODULE2PACKAGE['mmseg'] = 'mmseg'

# in an installed package a folder of files, in a checkout a link to configs/
CONFIGS = Path(__file__).parent / '.mim/configs'
PROJECTS = CONFIGS.resolve().parent / 'projects'  # only in a checkout


class ConfigError(UserError):
    """A mistake in a config."""


def config_files() -> dict[str, Path]:
    """The configs by their names."""
    files = *CONFIGS.glob('[!_]*/*.py'), *PROJECTS.glob('*/configs/*.py')
    return {file.stem: file for file in files}


def read_config(path: str) -> Config:
    """A config from a file, a package (``mmseg::swin/...py``), or the name of one of mmbixt's."""
    if '::' in path:
        return Config.fromstring(f'_base_ = {path!r}', '.py')
    if not Path(path).is_file():
        names, name = config_files(), Path(path).stem
        if path not in (name, f'{name}.py') or name not in names:
            text = f'{path} is neither a file nor the name of a config.'
            raise FileNotFoundError(text + near_matches(name, names))
        path = str(names[name])
    return Config.fromfile(path)


def named_dicts(part: Any, path: str = '') -> Iterator[tuple[str, ConfigDict]]:
    """All dicts in a part of a config, with their paths, such as 'model.backbone'."""
    if isinstance(part, dict):
        yield path, part
    items = enumerate(part) if isinstance(part, (list, tuple)) else ()
    for key, value in part.items() if isinstance(part, dict) else items:
        yield from named_dicts(value, f'{path}.{key}'.lstrip('.'))


def all_dicts(*nodes: Any) -> list[ConfigDict]:
    """All dicts in parts of a config, each once."""
    return list({id(node): node for _, node in named_dicts(nodes)}.values())


def without_downloads(model: ConfigDict) -> ConfigDict:
    """Keep timm from downloading weights for a model whose weights come from a checkpoint."""
    for node in all_dicts(model):
        if node.get('pretrained') is True:
            node['pretrained'] = False
    return model


def type_name(node: Mapping[str, Any]) -> str:
    """The type of a part without its scope; a class in configs in Python's own syntax."""
    kind = node.get('type')
    return kind.__name__ if isinstance(kind, type) else str(kind).rpartition('.')[2]


def within(cfg: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """A part of a config; empty where it is missing, None or an object."""
    for key in keys:
        part = cfg.get(key)
        cfg = part if isinstance(part, Mapping) else {}
    return cfg


def data_sets(cfg: Mapping[str, Any], split: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The data sets of a split, also those in wrappers, with the names of their settings."""
    queue = [(f'{split}_dataloader.dataset', within(cfg, f'{split}_dataloader', 'dataset'))]
    for path, dataset in queue:  # grows within the loop
        inner = [(f'{path}.dataset', dataset.get('dataset'))]
        inner += [(f'{path}.datasets.{i}', x) for i, x in enumerate(dataset.get('datasets') or ())]
        inner = [(name, part) for name, part in inner if isinstance(part, Mapping)]
        queue += inner
        if dataset and not inner:
            yield path, dataset


def test_set(cfg: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first data set of the tests."""
    for _, dataset in data_sets(cfg, 'test'):
        return dataset
    raise ConfigError('There is no test_dataloader, whose data set gives sizes and classes.')
