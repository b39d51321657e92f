"""Problems of images and their labels, as mmseg and mmdet load them."""

import json
import logging
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmengine.dataset import BaseDataset
from mmengine.logging import print_log
from PIL import Image, UnidentifiedImageError

from mmbixt.frameworks import is_of_project

Size = tuple[int, int]  # width, height

_SHOWN = 20  # most entries of a list in a message
_OUTSIDE = 0.05  # fraction of an image's side: boxes often exceed the image by a pixel or two
_UNKNOWN = (UnidentifiedImageError, Image.DecompressionBombError)  # PIL fails, OpenCV may not
_UNUSED = 0.001  # fraction of boxes that is not worth a message; COCO has some, too
_ORIENTATION = 0x0112  # the EXIF tag
_SIDEWAYS = (5, 6, 7, 8)  # orientations that exchange width and height


class BadSampleError(ValueError):
    """An image, its labels or annotations cannot be used."""

    def __str__(self) -> str:
        # workers of torch's data loader put their traceback before the message
        return super().__str__().rpartition(f'{type(self).__name__}: ')[2]


class UnknownClassesError(BadSampleError):
    """A COCO file lacks classes of its data set."""


def _orientation_of(path: str) -> int:
    """The EXIF orientation of a file, 1 to 8; 1 if it is shown as it is stored, or not known."""
    tag = 1
    with suppress(*_UNKNOWN), Image.open(path) as image:
        tag = image.getexif().get(_ORIENTATION, 1)
    return tag if tag in range(1, 9) else 1


def size_problem(results: dict, labelled: Size, turns: bool, labels: str) -> str | None:
    """Why labels do not fit the size or orientation of a loaded image; None if they do.

    Args:
        results: results of mmcv's ``LoadImageFromFile``.
        labelled: image size according to the labels.
        turns: whether it rotates images according to their EXIF data.
        labels: what the message calls the labels.
    """
    if 'ori_shape' not in results:  # labels are loaded before the image
        return None
    path, shown = results['img_path'], tuple(results['ori_shape'][::-1])
    orientation = _orientation_of(path) if turns and os.path.isfile(path) else 1
    stored = shown[::-1] if orientation in _SIDEWAYS else shown
    if orientation != 1 and labelled == stored:  # another size shows that they fit as it is shown
        doubt = 'may be for the image as it is stored' if shown == stored else 'are not turned'
        return (
            f'{path} is turned or mirrored when it is read (EXIF orientation {orientation}), and '
            f'its labels {doubt}. If they fit the image as stored, set '
            "color_type='color_ignore_orientation' in LoadImageFromFile; if they fit it as shown, "
            'rewrite it with PIL.ImageOps.exif_transpose'
        )
    if labelled == shown:
        return None
    width, height = labelled
    return f'{labels} is for {width} x {height} pixels, but {path} has {shown[0]} x {shown[1]}'


def image_problem(results: dict, turns: bool, is_final: bool = True) -> str | None:
    """The problem of a loaded image, or of its size in a COCO file; None if there is none.

    Pixels must be finite if the image is final: transforms of a project may fill gaps.
    """
    path, image = results['img_path'], results['img']
    if is_final and image.dtype.kind == 'f' and not (finite := np.isfinite(image)).all():
        return f'{path} has {np.sum(~finite):,} values that are NaN or infinite'
    if 'instances' not in results or 'width' not in results:
        return None
    annotated = results['width'], results['height']
    if min(annotated) <= 0:  # unknown, in files of VOC
        return None
    return size_problem(results, annotated, turns, f'the annotation of {path}')


def label_size_problem(results: dict, turns: bool) -> str | None:
    """Why a label map does not fit its image; None if it does."""
    size = results['gt_seg_map'].shape[1::-1]
    return size_problem(results, size, turns, results['seg_map_path'])


class LabelProblem:
    """The problem of a label map of mmseg; None if there is none.

    Args:
        classes: number of classes.
        ignored: ids that are not classes; ids above 255 cannot occur.
        reduced: whether ids were reduced by one when they were loaded.
    """

    def __init__(self, classes: int, ignored: Collection[int], reduced: bool) -> None:
        self.is_wrong = (np.arange(256) >= classes).astype(np.uint8)  # of each id
        self.ignored = sorted({*ignored})
        ignored = sorted({i for i in ignored if 0 <= i < 256})
        self.is_wrong[ignored] = 0
        self.expected = f'0 to {classes - 1} are classes; ignored: {ignored}'
        self.note = ', after reduce_zero_label' if reduced else ''

    def __call__(self, results: dict, turns: bool) -> str | None:
        path, label = results['seg_map_path'], results['gt_seg_map']
        if label.ndim != 2:
            shape = ' x '.join(map(str, label.shape))
            return f'{path} is of shape {shape}; labels have one channel, with the ids of classes'
        if problem := label_size_problem(results, turns):
            return problem
        if os.path.isfile(path):
            with suppress(*_UNKNOWN), Image.open(path) as image:
                if image.mode[0] in 'IF' and np.max(image) > 255:
                    return f'{path} has ids up to {np.max(image)}; mmseg keeps 8 bits of them'
        return self.of_ids(path, label)

    def of_ids(self, path: str, label: np.ndarray) -> str | None:
        """The same for the ids (H,W), of any type of integers, alone."""
        if label.dtype != np.uint8:
            outside = np.setdiff1d(label[(label < 0) | (label > 255)], self.ignored)
            if outside.size:
                shown = ', '.join(map(str, outside[:_SHOWN]))
                return f'{path} has the ids {shown}{self.note}, where {self.expected}'
            label = label[(label >= 0) & (label <= 255)].astype(np.uint8)  # others are ignored
            if not label.size:
                return None
        if not cv2.LUT(label, self.is_wrong).any():
            return None
        counts = np.bincount(label.ravel(), minlength=256)
        wrong = np.flatnonzero(counts * self.is_wrong)
        found = [f'{i} ({counts[i]:,} pixels)' for i in wrong]
        return f'{path} has the ids {", ".join(found[:_SHOWN])}{self.note}, where {self.expected}'


def is_possible(box: Sequence[float], size: Size) -> bool:
    """Whether a box (left, top, right, bottom) is finite and overlaps the image."""
    left, top, right, bottom = box
    overlaps = left <= size[0] and top <= size[1] and right >= 0 and bottom >= 0
    return overlaps and all(map(math.isfinite, box))


class BoxProblem:
    """The problem of the boxes of an image, at its original size; None if there is none.

    Boxes of partly visible objects (as in CrowdHuman) may reach far outside: the first is logged.
    """

    def __init__(self) -> None:
        self.is_logged = torch.zeros(1, dtype=torch.bool).share_memory_()  # of all workers

    def __call__(self, results: dict, turns: bool) -> str | None:
        if 'ori_shape' not in results:  # annotations are loaded before the image
            return None
        height, width = results['ori_shape']
        for instance in results.get('instances', ()):
            if len(instance.get('bbox', ())) != 4:  # none, or rotated boxes of a project
                continue
            left, top, right, bottom = box = instance['bbox']
            over = max(-left, right - width) / width, max(-top, bottom - height) / height
            possible = is_possible(box, (width, height))
            if possible and (max(over) <= _OUTSIDE or self.is_logged):
                continue
            text = (
                f'{results["img_path"]} is {width} x {height} pixels, and a box of its annotations '
                f'(left, top, right, bottom) is {", ".join(f"{x:g}" for x in box)}'
            )
            if not possible:
                return text
            self.is_logged.fill_(True)
            text += '. Is it meant to reach that far? (Other such boxes are not reported.)'
            print_log(text, 'current', logging.WARNING)
        return None


def reading_problem(path: str, error: Exception) -> str:
    """The problem of a file that could not be read."""
    if isinstance(error, FileNotFoundError):
        return f'{path}: missing'
    if os.path.isfile(path) and os.path.getsize(path) == 0:
        return f'{path}: an empty file'
    text = ' '.join(str(error).split())
    if 'reduce_zero_label' in text:  # it differs between data set and pipeline
        return f'{path} cannot be read with these settings: {text}'
    reasons = [] if isinstance(error, AssertionError) else [f'{type(error).__name__}: {text}']
    if not os.path.isfile(path):  # of another backend
        return f'{path} cannot be read: {reasons[0] if reasons else text}'
    if damage := _damage(path):
        reasons.insert(0, damage)
    return f'{path}: damaged, or not an image ({"; ".join(reasons) or text})'


def _damage(path: str) -> str:
    """What PIL says of an image that OpenCV could not read; '' if PIL can read it."""
    try:
        with Image.open(path) as image:
            image.load()
    except UnidentifiedImageError:
        return 'it has the format of no image'
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        return str(error)
    return ''


def built_leaves(dataset: Any) -> Iterator[BaseDataset]:
    """The data sets inside wrappers (RepeatDataset, ConcatDataset ...)."""
    if isinstance(dataset, BaseDataset):
        yield dataset
    for part in getattr(dataset, 'datasets', None) or [getattr(dataset, 'dataset', None)]:
        if part is not None:
            yield from built_leaves(part)


def check_annotations(dataset: Any) -> None:
    """Raise an error for a data set that is empty, or a COCO file without its classes."""
    from mmcv.transforms import LoadAnnotations

    ids = getattr(dataset, 'cat_ids', None)  # of mmdet: the categories of the classes
    if ids is None:
        if len(dataset) == 0:
            raise BadSampleError(f'{_images(dataset)}: no images found.')
        return
    classes = dataset.metainfo.get('classes') or ()
    if len(ids) < len(classes):
        names = [category['name'] for category in _content(dataset)['categories']]
        absent = [name for name in classes if name not in names]
        raise UnknownClassesError(
            f'{dataset.ann_file} has no categories {_listing(absent)}; it has {_listing(names)}. '
            "Set metainfo=dict(classes=(...)) of the data sets to the file's names, and "
            'num_classes of the model to their number.'
        )
    _check_order(dataset, classes)
    loads = any(isinstance(x, LoadAnnotations) for x in dataset.pipeline.transforms)
    infos = map(dataset.get_data_info, range(len(dataset)))
    # unlabelled data sets load no annotations; video data sets keep theirs in 'images'
    is_bare = loads and not any(info.get('instances', True) for info in infos)
    if is_bare or len(dataset) == 0:
        content = _content(dataset)
        images, annotations = (len(content.get(key, ())) for key in ('images', 'annotations'))
        raise BadSampleError(
            f'{dataset.ann_file} has {images:,} images and {annotations:,} annotations, but no '
            'annotation can be used: each needs an area, a box within its image and a class.'
        )


def _check_order(dataset: Any, classes: Sequence[str]) -> None:
    """mmdet numbers the categories in the order of the file, whatever the order of the classes."""
    kind = type(dataset)
    known = () if is_of_project(kind) else kind.METAINFO.get('classes') or ()
    readers = (kind.full_init, kind.load_data_list, kind.parse_data_info)
    is_known = any(map(is_of_project, readers)) or tuple(classes) == tuple(known)
    if is_known or not os.path.isfile(dataset.ann_file):
        return
    names = {category['id']: category['name'] for category in _categories(dataset)}
    order = [names.get(i) for i in dataset.cat_ids]
    if order == [*classes]:
        return
    if twice := [name for i, name in enumerate(order) if name in order[:i]]:
        raise BadSampleError(
            f'{dataset.ann_file} has several categories with the name {twice[0]!r}, which mmdet '
            'numbers apart. Give its annotations one id.'
        )
    raise BadSampleError(
        f'{dataset.ann_file} has its categories in another order than metainfo.classes, and mmdet '
        f'numbers them as the file does. Set classes=({_listing([*map(repr, order)])}).'
    )


def unused_boxes(dataset: Any) -> str | None:
    """How many boxes of a COCO file mmdet leaves out in silence, if that is more than a few."""
    if not getattr(dataset, 'cat_ids', None):  # none of mmdet
        return None
    from mmdet.datasets import CocoDataset

    is_usual = getattr(type(dataset), 'parse_data_info', None) is CocoDataset.parse_data_info
    if not is_usual or not os.path.isfile(dataset.ann_file):
        return None
    content = _content(dataset)
    images = {image['id']: image for image in content['images']}
    used = {*dataset.cat_ids}
    boxes = [x for x in content.get('annotations', ()) if x['category_id'] in used]
    boxes = [x for x in boxes if 'bbox' in x and not x.get('ignore')]
    bad = [x for x in boxes if x['image_id'] in images and not _is_used(x, images[x['image_id']])]
    if len(bad) <= len(boxes) * _UNUSED:
        return None
    image = images[bad[0]['image_id']]
    name = image.get('file_name', image['id'])
    return (
        f'{dataset.ann_file}: {len(bad):,} of {len(boxes):,} annotations are not used, because '
        'their area is 0, or their box (left, top, width, height) is outside of the image or '
        f'narrower than a pixel; the first is {bad[0]["bbox"]} in {name}, of '
        f'{image["width"]} x {image["height"]} pixels'
    )


def _is_used(annotation: Mapping[str, Any], image: Mapping[str, Any]) -> bool:
    """By the rule of mmdet's ``CocoDataset``."""
    left, top, width, height = annotation['bbox']
    inside = min(left + width, image['width']) - max(left, 0)
    below = min(top + height, image['height']) - max(top, 0)
    return inside > 0 and below > 0 and annotation.get('area', 1) > 0 and min(width, height) >= 1


def _categories(dataset: Any) -> list[dict[str, Any]]:
    """The categories of a COCO file; all processes read it, so only this part is decoded."""
    text = Path(dataset.ann_file).read_text()
    with suppress(KeyError, TypeError, ValueError):  # not that of the file
        start = text.index('[', text.rindex('"categories"'))
        found, _ = json.JSONDecoder().raw_decode(text, start)
        if {*dataset.cat_ids} <= {x['id'] for x in found if isinstance(x, dict) and 'name' in x}:
            return found
    return json.loads(text)['categories']


def _content(dataset: Any) -> dict[str, list]:
    return json.loads(Path(dataset.ann_file).read_text())


def _images(dataset: Any) -> str:
    """The location of the images of a data set of mmseg, or of the list of them in others."""
    if not hasattr(dataset, 'img_suffix'):
        return dataset.ann_file
    return f'{dataset.ann_file or dataset.data_prefix.get("img_path")}, NAME{dataset.img_suffix}'


def _listing(names: list[str]) -> str:
    return ', '.join(names[:_SHOWN]) + (' ...' if len(names) > _SHOWN else '')
