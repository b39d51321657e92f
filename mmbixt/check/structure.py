"""Parts of a config that are no dicts: nothing else can be checked with them."""

from collections.abc import Iterator, Mapping
from typing import Any

from mmbixt.check.model import PARTS
from mmbixt.config import type_name, within

DICTS = ('model', 'data_preprocessor', 'train_cfg', 'optim_wrapper', 'default_hooks', 'visualizer')
LOOPS = ('EpochBasedTrainLoop', 'IterBasedTrainLoop', 'ValLoop', 'TestLoop', 'None')
LISTS = ('param_scheduler', 'custom_hooks')  # or one dict


def structure_problems(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> Iterator[str]:
    """A message for each text, number or list in place of a dict."""
    # loops of projects may have several data loaders
    loops = {split: type_name(within(cfg, f'{split}_cfg')) for split in splits}
    usual = [split for split, loop in loops.items() if loop.rpartition('.')[2] in LOOPS]
    loaders = [f'{split}_dataloader' for split in usual]
    places = {name: cfg.get(name) for name in (*DICTS, *loaders)}
    for loader in loaders:
        if isinstance(cfg.get(loader), Mapping):
            places[f'{loader}.dataset'] = cfg[loader].get('dataset') or []
    places |= {f'default_hooks.{key}': x for key, x in within(cfg, 'default_hooks').items()}
    lists = {name: cfg.get(name) for name in (*LISTS, *(f'{split}_evaluator' for split in splits))}
    lists |= {f'model.{name}': within(cfg, 'model').get(name) for name in PARTS}
    lists['model.backbone.init_cfg'] = within(cfg, 'model', 'backbone').get('init_cfg')
    for path, parts in lists.items():
        if isinstance(parts, list | tuple):
            places |= {f'{path}.{i}': part for i, part in enumerate(parts)}
        else:
            places[path] = parts
    for path, part in places.items():
        if isinstance(part, str | int | float | list | tuple):
            yield f'{path} has {part!r:.80} in place of a dict: set it in the config.'
