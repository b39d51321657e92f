"""Mistakes that only the built model, data sets and schedules show."""

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from mmengine.dataset import BaseDataset
from mmengine.model import BaseTTAModel, is_model_wrapper
from mmengine.optim import scheduler
from torch import nn

from mmbixt.config import ConfigError

Classes = tuple[str, ...]
_TO_ZERO = (scheduler.PolyParamScheduler, scheduler.CosineAnnealingParamScheduler)


def unwrapped(model: nn.Module) -> nn.Module:
    """A model without wrappers."""
    is_wrapper = is_model_wrapper(model) or isinstance(model, BaseTTAModel)
    return unwrapped(model.module) if is_wrapper else model


def leaves(dataset: Any) -> Iterator[BaseDataset]:
    """The data sets inside wrappers (RepeatDataset, ConcatDataset ...)."""
    if isinstance(dataset, BaseDataset):
        yield dataset
    for part in getattr(dataset, 'datasets', None) or [getattr(dataset, 'dataset', None)]:
        if part is not None:
            yield from leaves(part)


def classes_of(dataset: Any) -> Classes:
    """The names of a data set's classes; none if it has none."""
    return tuple((getattr(dataset, 'metainfo', None) or {}).get('classes') or ())


def check_trained(model: nn.Module, checkpoint: Mapping[str, Any], dataset: Any) -> None:
    """Raise an error if the classes of a trained model are not those of a data set."""
    trained = (checkpoint.get('meta') or {}).get('dataset_meta') or {}
    classes = dict(training=tuple(trained.get('classes') or ()), test=classes_of(dataset))
    problems = [
        *order_problems(classes),
        *head_problems(model, dict(test=classes['test'])),
        *chain.from_iterable(map(dataset_problems, leaves(dataset))),
    ]
    if problems:
        raise ConfigError('\n'.join(problems))


def head_problems(model: nn.Module, splits: Mapping[str, Classes]) -> Iterator[str]:
    """A message for each head that has another number of classes than the data of a split."""
    parts = dict(model.named_modules())
    # heads for classes of things and of stuff: panoptic models, HTC, SCNet
    if any(name.endswith('semantic_head') for name in parts):
        return
    for name, head in parts.items():
        count, kind = getattr(head, 'num_classes', None), name.rstrip('.0123456789')
        # foreground or background: proposals, one logit, auxiliary heads for boundaries
        is_binary = type(head).__name__.endswith('RPNHead') or getattr(head, 'out_channels', 0) == 1
        is_binary |= count in (1, 2) and kind == 'auxiliary_head'
        if not isinstance(count, int) or not kind.endswith('head') or is_binary:
            continue
        for split, classes in splits.items():
            if classes and len(classes) != count:
                yield (
                    f'model.{name}.num_classes = {count}, but {split}_dataloader has '
                    f'{len(classes)} classes.'
                )


def order_problems(splits: Mapping[str, Classes]) -> Iterator[str]:
    """A message if the classes of two splits differ in their order alone: ids change meaning."""
    first, names = next((x for x in splits.items() if x[1]), ('', ()))
    for split, other in splits.items():
        if names != other and sorted(names) == sorted(other):
            i = next(i for i, name in enumerate(names) if name != other[i])
            yield (
                f'{split} has the classes of {first} in another order: number {i} is '
                f'{other[i]!r}, not {names[i]!r}.'
            )


def dataset_problems(dataset: BaseDataset) -> Iterator[str]:
    """A message if a COCO file lacks classes, or has its categories in another order.

    mmdet numbers the categories in the order of the file, whatever the order of the classes.
    """
    file, classes = getattr(dataset, 'ann_file', ''), classes_of(dataset)
    ids = getattr(dataset, 'cat_ids', None) or ()
    is_stock = classes == tuple(type(dataset).METAINFO.get('classes') or ())
    # COCO's own files, whose last id is 90, need not be read again: it takes half a minute
    if not ids or not Path(file).is_file() or (is_stock and ids[-1] == 90):
        return
    categories = {x['id']: x['name'] for x in json.loads(Path(file).read_text())['categories']}
    if absent := [name for name in classes if name not in categories.values()]:
        yield (
            f'{file} lacks the categories {", ".join(absent)}; it has '
            f'{", ".join(categories.values())}. Set metainfo=dict(classes=(...)) and num_classes.'
        )
    elif (order := [categories.get(i) for i in ids]) != [*classes]:
        yield (
            f'{file} has its categories in another order than metainfo.classes, and mmdet numbers '
            f'them as the file does. Set classes={tuple(order)}.'
        )


def schedule_problems(schedulers: Any, lengths: Mapping[bool, int]) -> Iterator[str]:
    """A message if the last schedule of the learning rate ends at 0 before the training does.

    ``lengths`` of the training are in epochs (True) and in iterations (False).
    """
    groups = schedulers.values() if isinstance(schedulers, Mapping) else [schedulers or []]
    for last in (group[-1] for group in groups if group):
        if not isinstance(last, _TO_ZERO) or last.param_name != 'lr':
            continue
        length, span = lengths[last.by_epoch], last.end - last.begin
        rises_again = getattr(last, 'T_max', span) != span
        lowest = last.eta_min or getattr(last, 'eta_min_ratio', 0)
        if last.end < length and not (lowest or rises_again):
            yield (
                f'{type(last).__name__} ends after {last.end:,}, and training after {length:,}: '
                f'from there on the learning rate is 0. Set its end to {length}.'
            )
