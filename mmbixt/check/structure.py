"""Parts of a config that are no dicts: nothing else can be checked with them."""

from collections.abc import Iterator, Mapping
from typing import Any

from mmbixt.check.model import PARTS
from mmbixt.config import within

SINGLE = ('model', 'data_preprocessor', 'train_cfg', 'optim_wrapper', 'default_hooks', 'visualizer')
LISTS = ('param_scheduler', 'custom_hooks')


def structure_problems(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> Iterator[str]:
    """A message for each text, number or list in place of a dict."""
    loaders = [f'{split}_dataloader' for split in splits]
    names = (*SINGLE, *LISTS, *loaders, *(f'{split}_evaluator' for split in splits))
    places = {name: cfg.get(name) for name in names}
    for name in ('model', 'default_hooks', *loaders):
        if isinstance(part := places[name], Mapping):
            inner = {'model': PARTS, 'default_hooks': part}.get(name, ('dataset',))
            places |= {f'{name}.{key}': part.get(key) for key in inner}
    places['model.backbone.init_cfg'] = within(cfg, 'model', 'backbone').get('init_cfg')
    for path, part in places.items():
        for one in part if isinstance(part, list | tuple) else [part]:
            if isinstance(one, str | int | float):
                yield f'{path} has {one!r} in place of a dict: set it in the config.'
    for name in SINGLE:
        if isinstance(places[name], list | tuple):
            yield f'{name} is a list in place of a dict.'
    for loader in loaders:
        if isinstance(part := places[loader], Mapping):
            dataset = part.get('dataset')
            if dataset is None or isinstance(dataset, list | tuple):
                yield f'{loader}.dataset = {dataset} is no data set.'
        if isinstance(places[loader], list | tuple):
            yield (
                f'{loader} is a list, and a run has one data loader for each split. Join '
                "the data sets by dataset=dict(type='ConcatDataset', datasets=[...]), or use "
                'several runs.'
            )
