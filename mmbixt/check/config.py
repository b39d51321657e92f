"""All mistakes of a config in one list, with the names of its settings.

``tools/train.py`` and ``tools/test.py`` start with this check; ``tools/check_config.py`` runs only
the check. A mistake is something that failed when it was tried here, or that cannot be intended.
"""

import copy
import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from unittest import mock

import numpy as np
import torch
from mmengine.config import Config
from mmengine.logging import MessageHub, MMLogger
from mmengine.registry import DefaultScope
from torch import nn

from mmbixt.check.arguments import argument_problems, paramwise_notes, paramwise_problems
from mmbixt.check.classes import (
    class_problems,
    classifier_problems,
    folder_problems,
    order_problems,
)
from mmbixt.check.data import image_of, inspect, reduction_notes
from mmbixt.check.ignored import ignored_notes
from mmbixt.check.metrics import (
    annotation_problems,
    best_problems,
    metric_errors,
    metric_problems,
)
from mmbixt.check.model import (
    adapter_problems,
    build_model,
    misfits,
    missing_file,
    missing_files,
    pyramid_notes,
)
from mmbixt.check.names import (
    correct_classes,
    correct_types,
    meant,
    misspelt_sections,
    scope_problems,
)
from mmbixt.check.prediction import prediction_problems
from mmbixt.check.schedule import loop_problems, schedule_notes
from mmbixt.check.split import Split
from mmbixt.check.structure import structure_problems
from mmbixt.config import within
from mmbixt.datasets.availability import MissingDatasetError, check_datasets
from mmbixt.progress import errors_only

SPLITS = ('train', 'val', 'test')


class ConfigError(ValueError):
    """Mistakes in a config, one a line."""


def find_problems(cfg: Config, splits: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Mistakes in a config, which would stop or invalidate a run, and notes on unusual settings.

    Args:
        cfg: of mmseg, mmdet or mmpretrain; it stays as it is.
        splits: the splits that the run uses: 'train', 'val', 'test'.
    """
    if wrong := [*structure_problems(cfg, splits), *scope_problems(cfg)]:
        return wrong, []
    misspelt = dict(misspelt_sections(cfg))
    absent = [name for name, right in misspelt.items() if cfg.get(right) is None]
    # other values are classes that the config imports
    if absent := [name for name in absent if isinstance(cfg[name], Mapping | list | str)]:
        text = 'the runner reads no section of this name.'
        return [f'{name}: {text}{meant(misspelt[name])}' for name in absent], []
    cfg = copy.deepcopy(cfg)
    with _undisturbed(cfg.get('default_scope')):
        problems = [*_problems_of_settings(cfg, splits)]
        model, found = build_model(cfg)
        if found and (wrong := [*correct_types(cfg, 'model', 'data_preprocessor')]):
            problems += wrong
            model, found = build_model(cfg)
        data, of_data = _inspect_all(cfg, splits, model)
        problems += [*found, *of_data, *order_problems(data)]
        if model is not None:
            problems += [*class_problems(model, data), *adapter_problems(model)]
            problems += classifier_problems(cfg, model, data)
            image, found = image_of(cfg, data, model)
            found += misfits(cfg.model, model, image)
            problems += found or prediction_problems(cfg, model, data)
            problems += paramwise_problems(cfg, model) if 'train' in splits else ()
        notes = [
            f'{name} is not read: the section of the runner is {right}.'
            for name, right in misspelt.items()
        ]
        notes += _notes(cfg, splits, data, model)
        if model is not None and not problems:
            notes += pyramid_notes(cfg.model, model, image)
        problems += _missing_data(cfg, data)
        return _merged(problems), _merged(notes)


def _merged(problems: list[str]) -> list[str]:
    """Each message once: 'train_ and val_dataloader ...' for what both have."""
    splits: dict[str, list[str]] = {}
    for problem in dict.fromkeys(problems):
        split, _, rest = problem.partition('_')
        is_of_split = split in ('train', 'val', 'test')
        splits.setdefault(rest if is_of_split else problem, []).extend([split] * is_of_split)
    return [f'{"_ and ".join(names)}_{text}' if names else text for text, names in splits.items()]


def _problems_of_settings(cfg: Config, splits: tuple[str, ...]) -> Iterator[str]:
    """Mistakes that are found without a model and data."""
    yield from argument_problems(cfg, splits)
    yield from metric_problems(cfg, splits)
    yield from metric_errors(cfg, splits)
    yield from correct_classes(cfg, splits)
    yield from folder_problems(cfg, splits)
    yield from annotation_problems(cfg, splits)
    yield from missing_files(cfg.get('model'), 'model')
    if 'train' in splits:
        yield from best_problems(cfg)
        yield from missing_file(cfg.get('load_from'), 'load_from')
        yield from loop_problems(cfg)


def _inspect_all(
    cfg: Config, splits: tuple[str, ...], model: nn.Module | None
) -> tuple[list[Split], list[str]]:
    """What is known about the data set of each split, and the mistakes."""
    data, problems = [], []
    for name in splits:
        if not within(cfg, key := f'{name}_dataloader', 'dataset'):  # a loop may have several
            continue
        split = inspect(cfg, name, model)
        if (split.problems or split.is_missing) and (wrong := [*correct_types(cfg, key)]):
            problems += wrong
            split = inspect(cfg, name, model)
        if not split.unknown or split.unknown not in [other.unknown for other in data]:
            problems += split.problems
        data.append(split)
    return data, problems


def _missing_data(cfg: Config, data: list[Split]) -> Iterator[str]:
    """One message for all files that are missing."""
    try:
        check_datasets(cfg, tuple(split.name for split in data if split.is_missing))
    except MissingDatasetError as error:
        yield str(error)


def check_config(cfg: Config, splits: tuple[str, ...], path: str) -> list[str]:
    """Raise one error with all mistakes; return the notes on unusual settings."""
    try:
        problems, notes = find_problems(cfg, splits)
    except Exception as error:
        error.add_note(f'This happened in the check of {path}, which --unchecked skips.')
        raise
    if problems:
        count = 'a mistake' if len(problems) == 1 else f'{len(problems)} mistakes'
        raise ConfigError('\n- '.join([f'{count} in {path}', *problems]))
    return notes


def _notes(
    cfg: Config, splits: tuple[str, ...], data: list[Split], model: nn.Module | None
) -> Iterator[str]:
    for split in data:
        yield from split.notes
    yield from reduction_notes(data)
    yield from ignored_notes(cfg, splits)
    if 'train' in splits:
        yield from paramwise_notes(cfg, model)
    if 'train' in splits and not [*loop_problems(cfg)]:  # notes compute with the lengths
        yield from schedule_notes(cfg, data[0].epoch if data else None)


@contextmanager
def _undisturbed(scope: str | None) -> Iterator[None]:
    """Use the scope of a framework, restore the random states afterwards, and print nothing."""
    states = random.getstate(), np.random.get_state()
    random.seed(0)
    np.random.seed(0)
    try:
        with (
            DefaultScope.overwrite_default_scope(scope),
            torch.random.fork_rng(devices=[]),
            torch.no_grad(),
            warnings.catch_warnings(),
            redirect_stdout(StringIO()),  # pycocotools prints
            mock.patch.dict(MMLogger._instance_dict),  # remove loggers that are made here
            mock.patch.dict(MessageHub._instance_dict, clear=True),
            errors_only(MMLogger.get_current_instance()),
        ):
            warnings.simplefilter('ignore')  # the run repeats them
            hub = MessageHub.get_current_instance()  # some data preprocessors read it
            hub.update_info_dict(dict(iter=0, epoch=0))
            torch.manual_seed(0)
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
