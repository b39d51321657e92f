"""The classes of the data sets of a config: their names, their number and their order."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from mmbixt.check.metrics import metrics_of
from mmbixt.check.model import PARTS
from mmbixt.check.split import Split
from mmbixt.config import type_name, within
from mmbixt.datasets.availability import parts_of
from mmbixt.frameworks import is_of_project


def class_problems(model: nn.Module, splits: list[Split]) -> Iterator[str]:
    """A message for each head that has another number of classes than a data set."""
    # panoptic: heads for things and heads for stuff; tracking: classes of its data set are unused
    if hasattr(model, 'semantic_head') or hasattr(model, 'detector'):
        return
    for name, head in model.named_modules():
        count, last = getattr(head, 'num_classes', None), name.rstrip('.0123456789')
        if not (isinstance(count, int) and last.endswith('head')) or count < 1:
            continue
        is_rpn = last.endswith('rpn_head') or 'RPN' in type(head).__name__  # object or background
        if is_rpn or last.endswith('semantic_head'):  # of stuff, in a hybrid task cascade
            continue
        if is_of_project(type(head)) and last.rpartition('.')[2] not in PARTS:  # of another task
            continue
        is_binary = getattr(head, 'out_channels', 0) == 1
        if is_binary or (name.startswith('auxiliary_head') and count <= 2):
            continue  # foreground or background; boundaries
        for classes in {x.classes: None for x in splits if x.classes}:
            if len(classes) != count:
                of = ', '.join(f'{x.name}_dataloader' for x in splits if x.classes == classes)
                have = 'have' if ',' in of else 'has'
                yield f'model.{name}.num_classes = {count}, but {of} {have} {len(classes)} classes.'


def classifier_problems(
    cfg: Mapping[str, Any], model: nn.Module, splits: list[Split]
) -> Iterator[str]:
    """The same for the one-hot labels of mmpretrain, and for the best k classes of its metric."""
    labels = getattr(model, 'data_preprocessor', None)
    is_one_hot = getattr(labels, 'to_onehot', None) or getattr(labels, 'batch_augments', None)
    count = getattr(labels, 'num_classes', None) if is_one_hot else None
    for split in splits:
        classes = len(split.classes)
        if classes and split.name == 'train' and count not in (None, classes):
            yield f'data_preprocessor.num_classes = {count}, but train_dataloader has {classes}.'
        for scope, kind, metric in metrics_of(cfg.get(f'{split.name}_evaluator')):
            if kind != 'Accuracy' or scope not in (None, 'mmpretrain'):
                continue
            topk = metric.get('topk', 1)
            sizes = topk if isinstance(topk, list | tuple) else [topk]
            if 0 < classes < max([k for k in sizes if isinstance(k, int)], default=0):
                yield (
                    f'{split.name}_evaluator: Accuracy has topk = {topk}, but '
                    f'{split.name}_dataloader has {classes} classes.'
                )


def order_problems(splits: list[Split]) -> Iterator[str]:
    """A message if the classes of two splits differ in their order alone: ids change meaning."""
    known = [split for split in splits if split.classes]
    for split in known[1:]:
        first, classes = known[0].classes, split.classes
        if first != classes and Counter(first) == Counter(classes):
            i = next(
                i for i, pair in enumerate(zip(first, classes, strict=True)) if len({*pair}) > 1
            )
            yield (
                f'{split.name}_dataloader.dataset has the classes of {known[0].name}_dataloader in '
                f'another order: number {i} is {classes[i]!r}, not {first[i]!r}.'
            )


def folder_problems(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> Iterator[str]:
    """A message if a class of images is not the folder with its number: they are sorted by name.

    For mmpretrain's own class of folders; other packages' users give this name to theirs.
    """
    names = {'mmpretrain.CustomDataset'}
    names |= {'CustomDataset'} if cfg.get('default_scope') == 'mmpretrain' else set()
    for path, dataset in (part for split in splits for part in parts_of(cfg, split)):
        classes, prefix = within(dataset, 'metainfo').get('classes'), dataset.get('data_prefix')
        prefix = prefix.get('img_path') if isinstance(prefix, Mapping) else prefix
        root = Path(dataset.get('data_root') or '', prefix or '')
        has_list = dataset.get('ann_file') or not dataset.get('with_label', True)
        is_named = classes and not isinstance(classes, str)  # a string is the name of a file
        if type_name(dataset) not in names or has_list or not is_named or not root.is_dir():
            continue
        folders = sorted(x.name for x in root.iterdir() if x.is_dir())  # mmpretrain's hidden, too
        places = {name: i for i, name in enumerate(folders)}  # others have readable names
        is_moved = any(places.get(name, i) != i for i, name in enumerate(classes))
        if is_moved or len(classes) != len(folders):
            yield (
                f'{path}.metainfo.classes begins with {list(classes)[:10]}, but the folders of '
                f'{root}, which are numbered in alphabetical order, with {folders[:10]}.'
            )


def name_problems(path: str, metainfo: Mapping[str, Any]) -> Iterator[str]:
    """Classes of the same name in a config, and colours that are none."""
    classes, palette = metainfo.get('classes'), metainfo.get('palette')
    classes = classes if isinstance(classes, list | tuple) else ()  # or the name of a file
    if twice := [name for i, name in enumerate(classes) if name in classes[:i]]:
        yield f'{path}.metainfo.classes has {twice[0]!r} twice.'
    # mmdet takes one colour for all classes
    has_many = isinstance(palette, list | tuple) and not _is_colour(palette)
    colours = palette if has_many else ()
    if wrong := [i for i, colour in enumerate(colours) if not _is_colour(colour)]:
        yield (
            f'{path}.metainfo.palette: number {wrong[0]}, {colours[wrong[0]]}, is no colour, which '
            'has three whole numbers from 0 to 255.'
        )


def _is_colour(colour: Any) -> bool:
    try:
        return len(colour) == 3 and all(value in range(256) for value in colour)
    except TypeError:  # no sequence
        return False
