"""The data sets of a config: built, and the first images with their labels."""

import copy
from collections.abc import Iterator, Mapping, Sized
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import BaseDataset, pseudo_collate
from mmengine.dist import get_world_size
from mmengine.registry import DATASETS, MODELS
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset

from mmbixt.check.classes import class_problems, name_problems
from mmbixt.check.metrics import metrics_of
from mmbixt.check.names import explain, registered
from mmbixt.check.split import Split
from mmbixt.config import type_name, within
from mmbixt.datasets.availability import (
    MissingDatasetError,
    annotation_file,
    check_datasets,
    leaves,
    parts_of,
)
from mmbixt.datasets.problems import (
    BadSampleError,
    UnknownClassesError,
    built_leaves,
    check_annotations,
    unused_boxes,
)
from mmbixt.engine.sample_check import Checked, watch
from mmbixt.evaluation.folders import BROKEN
from mmbixt.frameworks import is_of_project

MMS = ('mmseg', 'mmdet')  # whose data sets have names and colours of classes
OF_COCO = {'area', 'bbox', 'category_id', 'image_id', 'file_name', 'width', 'height'}  # keys
FIRST = 8  # images that are read
LARGE = 64 << 20  # bytes of annotations: they take long to read, and the run reads them again
FEW = 100_000  # images; ImageNet has a million
SIDE = 224  # of an image whose size is unknown


def inspect(cfg: Config, name: str, model: nn.Module | None) -> Split:
    """Build the data set of a split and read its first images, as ``SampleCheckHook`` does."""
    loader = cfg[f'{name}_dataloader']
    parts = [*leaves(loader['dataset'])]
    split = Split(name, str(parts[0].get('type')))
    try:
        split.classes = _published_classes(parts[0], cfg.get('default_scope'))
        check_datasets(cfg, (name,))
        of_classifier = cfg.get('default_scope') == 'mmpretrain'
        if _takes_long(parts, is_listed=bool(split.classes) and of_classifier):
            return split
        dataset = build_dataset(loader['dataset'], is_test=name == 'test')
        split.classes = tuple((getattr(dataset, 'metainfo', None) or {}).get('classes') or ())
        if not isinstance(dataset, Sized):  # a stream
            return split
        for path, part in parts_of(cfg, name) if cfg.get('default_scope') in MMS else ():
            split.problems += name_problems(path, within(part, 'metainfo'))
        reduces = {getattr(part, 'reduce_zero_label', None) for part in built_leaves(dataset)}
        split.reduces = reduces.pop() if len(reduces) == 1 else None
        split.epoch = -(-len(dataset) // (loader.get('batch_size', 1) * get_world_size()))
        split.notes += _sampler_notes(loader, name, len(dataset))
        split.notes += _indices_note(cfg, name, parts)
        _read_first(split, dataset, cfg, model)
    except MissingDatasetError:
        split.is_missing = True
    except Exception as error:  # raised by any class that the config names
        if isinstance(error, UnknownClassesError):  # their number says nothing about the model
            split.unknown, split.classes = split.classes, ()
        text = explain(error, cfg.get('default_scope'))
        split.problems.append(f'{name}_dataloader.dataset ({split.kind}): {text}')
    return split


def _zero_note(place: str, dataset: BaseDataset) -> Iterator[str]:
    """With reduce_zero_label, label 0 does not count; files that also have 255 may mean a class."""
    for i in range(min(FIRST, len(dataset))):
        if not (path := dataset.get_data_info(i).get('seg_map_path')):  # of a test
            return
        try:
            with Image.open(path) as image:
                labels = np.asarray(image)
        except BROKEN:  # of which the check of the image tells
            continue
        if labels.ndim == 2 and (labels == 0).any() and (labels == 255).any():
            yield (
                f'{place} has reduce_zero_label=True, and {path} has the labels 0 and 255. Neither '
                'counts then: if 0 is a class, set reduce_zero_label=False.'
            )
            return


def _indices_note(cfg: Config, name: str, parts: list[Mapping[str, Any]]) -> Iterator[str]:
    metrics = {kind for _, kind, _ in metrics_of(cfg.get(f'{name}_evaluator'))}
    has_part = any(part.get('indices') is not None for part in parts)
    if has_part and metrics & {'CocoMetric', 'BoundaryCocoMetric'}:
        yield (
            f'{name}_dataloader.dataset.indices: AP is of all images of the annotation file; those '
            'that are left out count as images without detections.'
        )


def _sampler_notes(loader: Mapping[str, Any], name: str, images: int) -> Iterator[str]:
    sampler = within(loader, 'sampler')
    times = sampler.get('num_repeats', 3)
    if type_name(sampler).endswith('RepeatAugSampler') and times > 1 and images < FEW:
        yield (
            f'{name}_dataloader.sampler = RepeatAugSampler, made for ImageNet: it takes each '
            f'image {times} times, and only 1/{times} of the {images:,} images an epoch. '
            "To use all: sampler=dict(_delete_=True, type='DefaultSampler', shuffle=True)."
        )


def reduction_notes(splits: list[Split]) -> Iterator[str]:
    """A note if only one of two splits ignores label 0, and shifts the others by one."""
    known = [split for split in splits if split.reduces is not None]
    for split in known[1:]:
        if (split.kind, split.reduces) == (known[0].kind, not known[0].reduces):
            yield (
                f'{known[0].name}_dataloader.dataset has reduce_zero_label={known[0].reduces}, and '
                f'{split.name}_dataloader.dataset {split.reduces}: unless their files differ, the '
                'classes of one are shifted by one.'
            )


def _read_first(split: Split, dataset: Any, cfg: Config, model: nn.Module | None) -> None:
    """Note the problems of the first images, or else the first one after the pipeline."""
    place = f'{split.name}_dataloader.dataset'
    metrics = {kind for _, kind, _ in metrics_of(cfg.get(f'{split.name}_evaluator'))}
    if not split.classes and metrics & {'IoUMetric', 'BoundaryIoUMetric'}:
        split.problems.append(
            f'{place} ({split.kind}) has no names of classes, which metrics need: set '
            'metainfo=dict(classes=(...), palette=[...]).'
        )
    if model is None or [*class_problems(model, [split])]:
        model = nn.Module()  # else each label of a class that a head lacks would be wrong, too
    if bad := _bad_images(dataset, model):
        hook = within(cfg, 'default_hooks', 'sample_check')
        skips = split.name == 'train' and hook.get('on_bad') == 'skip'
        images = min(FIRST, len(dataset))
        text = f'{bad[0]} ({len(bad)} of the first {images} images are bad)'
        (split.notes if skips else split.problems).append(text)
    for part in built_leaves(dataset):
        split.notes += _zero_note(place, part) if split.reduces else ()
        if text := unused_boxes(part):
            split.notes.append(text)
    if split.problems:
        return
    first = dataset[0]
    if isinstance(first, Mapping) and 'inputs' not in first:
        if is_of_project(type(model)):
            return
        split.problems.append(
            f'{place}.pipeline gives no inputs: its last step must be PackSegInputs (mmseg), '
            'PackDetInputs (mmdet) or PackInputs.'
        )
    else:
        split.first = first


def _takes_long(parts: list[Mapping[str, Any]], is_listed: bool) -> bool:
    """Whether a data set has a million files or objects, or is to be downloaded."""
    files = map(annotation_file, parts)
    return is_listed or any(path.is_file() and path.stat().st_size > LARGE for path in files)


def _published_classes(dataset: Mapping[str, Any], framework: str | None) -> tuple[str, ...]:
    """The classes that are known without reading the files."""
    kind = registered(framework).get(dataset['type'])
    metainfo = {**getattr(kind, 'METAINFO', {}), **(dataset.get('metainfo') or {})}
    classes = metainfo.get('classes')
    return tuple(classes) if isinstance(classes, list | tuple) else ()  # or the name of a file


def build_dataset(config: Mapping[str, Any], is_test: bool) -> Any:
    """The data set of a config; it must have images and, except for tests, annotations."""
    try:
        dataset = DATASETS.build(copy.deepcopy(config))
    except KeyError as error:
        files = ' or '.join(str(annotation_file(part)) for part in leaves(config))
        if not {*error.args} & OF_COCO or not files.endswith('.json'):
            raise
        raise BadSampleError(
            f'An image or annotation of {files} has no {error.args[0]!r}, which mmdet needs.'
        ) from error
    except ValueError as error:
        if 'need at least one array' not in str(error):
            raise
        for part in leaves(config):  # an empty one, which mmengine cannot serialize
            check_annotations(DATASETS.build({**part, 'serialize_data': False}))
        raise
    for part in [] if is_test else built_leaves(dataset):  # tests may have no annotations
        check_annotations(part)
    return dataset


class ImageProblems(Dataset):
    """The problems of each image of a data set and its labels, as ``SampleCheckHook`` finds them.

    Args:
        dataset: without wrappers.
        model: its heads may have fewer classes than the data set.
    """

    def __init__(self, dataset: BaseDataset, model: nn.Module) -> None:
        self.dataset, self.found = dataset, _Problems()
        before = dataset.pipeline.transforms
        dataset.pipeline.transforms = [*before]
        watch(dataset, model, self.found)
        self.steps = [x for x in dataset.pipeline.transforms if isinstance(x, Checked)]
        dataset.pipeline.transforms = before

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> list[str]:
        self.found.clear()
        results = self.dataset.get_data_info(index)
        for load in self.steps:
            results = results and load(results)
        return [*self.found]


class _Problems(list):
    """In place of the record of ``SampleCheckHook``: it keeps all messages."""

    add = list.append


def _bad_images(dataset: Any, model: nn.Module) -> list[str]:
    """The problems of the first images."""
    parts = (ImageProblems(part, model) for part in built_leaves(dataset))
    return [text for part in parts for i in range(min(FIRST, len(part))) for text in part[i]]


def image_of(cfg: Config, splits: list[Split], model: nn.Module) -> tuple[Tensor, list[str]]:
    """The input of the model, a meta tensor (1,C,H,W), and its problems."""
    config = cfg.model.get('data_preprocessor') or cfg.get('data_preprocessor')
    first = next((split for split in splits if isinstance(split.first, Mapping)), None)
    problems = []
    if config and first:
        try:
            kind = type(getattr(model, 'data_preprocessor', None))  # mmpretrain's configs name none
            preprocess = MODELS.build({'type': kind, **config})
            batch = preprocess(pseudo_collate([first.first]), training=first.name == 'train')
            if isinstance(batch['inputs'], Tensor):
                first.notes += _range_note(first, batch['inputs'])
                return torch.empty_like(batch['inputs'], device='meta'), []
        except Exception as error:
            text = explain(error, cfg.get('default_scope'))
            size = ' x '.join(map(str, getattr(first.first['inputs'], 'shape', '?')))
            mean = config.get('mean')
            mean = mean if isinstance(mean, list | tuple) else ()
            if size[:1].isdigit() and len(mean) > 1 and len(mean) != first.first['inputs'].shape[0]:
                text += (
                    f'. Its mean has {len(mean)} channels; the first image has those that the '
                    'pipeline gives (LoadImageFromFile with color_type, PhotoMetricDistortion: 3)'
                )
            problems = [f'model.data_preprocessor cannot prepare the first image ({size}): {text}']
    size = (config or {}).get('size') or _size_after(cfg, splits[0].name if splits else 'train')
    channels = within(cfg, 'model', 'backbone').get('in_channels', 3)
    return torch.empty(1, channels, *size, device='meta'), problems


def _range_note(split: Split, inputs: Tensor) -> Iterator[str]:
    """A note if an image of more than 8 bits is prepared by the mean and std of 8 bits."""
    values, largest = split.first['inputs'], inputs.abs().max()
    if isinstance(values, Tensor) and (values := values.float().max()) > 255 and largest > 50:
        yield (
            f'The first image of {split.name}_dataloader has values up to {values:,.0f}, '
            f'which mean and std of model.data_preprocessor make {largest:,.0f} for the network: '
            'give those of your images.'
        )


def _size_after(cfg: Config, split: str) -> tuple[int, int]:
    """The size that the last resizing or cropping of a pipeline gives."""
    dataset = next(leaves(within(cfg, f'{split}_dataloader', 'dataset')))
    for step in reversed(dataset.get('pipeline') or []):
        size = step.get('crop_size', step.get('scale'))
        if isinstance(size, int):
            return size, size
        if isinstance(size, tuple | list) and all(isinstance(side, int) for side in size):
            return tuple(size)
    return SIDE, SIDE
