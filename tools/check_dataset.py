"""Check the files of ADE20K, COCO or ImageNet before training.

All files are looked for, all images are decoded, and sizes, labels and annotations are compared.
Missing and damaged files are listed; nothing is changed.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from mmbixt.cli import run
from mmbixt.datasets.problems import is_possible, orientation_of, orientation_problem, turned
from mmbixt.progress import progress

SHOWN = 20  # most problems of a part that are printed
ADE_COUNTS = {'training': 20210, 'validation': 2000}
ADE_CLASSES = 150
COCO_COUNTS = {'train2017': 118287, 'val2017': 5000}
IMAGENET_COUNTS = {'train': 1281167, 'val': 50000}


class WrongFolderError(ValueError):
    """A folder is not the root of a supported data set."""


class Part(NamedTuple):
    """Training or validation data."""

    name: str
    count: int  # pictures found
    expected: int  # pictures of the published data set
    problems: list[str]  # found without opening any picture
    notes: list[str]  # unusual, but not wrong
    files: list[Any]  # arguments of `check`, one for each picture
    check: Callable[[Any], list[str]]  # opens a picture (and its label); returns its problems


def find_parts(root: Path) -> tuple[str, list[Part]]:
    """Name and parts of the data set in a folder, the ``data_root`` of a config."""
    if not root.is_dir():
        raise WrongFolderError(f'There is no folder {root.absolute()}.')
    if (root / 'annotations/training').is_dir() or (root / 'images/training').is_dir():
        return 'ADE20K', [_ade20k_part(root, split) for split in ADE_COUNTS]
    if list(root.glob('annotations/instances_*.json')):
        return 'COCO', [_coco_part(root, split) for split in COCO_COUNTS]
    if (root / 'train').is_dir() and (root / 'val').is_dir():
        return 'ImageNet', [_imagenet_part(root, split) for split in IMAGENET_COUNTS]
    if below := [*root.glob('*/annotations'), *root.glob('*/*/annotations')]:
        maybe = ' or '.join(sorted(str(path.parent) for path in below))
        raise WrongFolderError(f'{root} is not the root of a data set, but {maybe} may be.')
    raise WrongFolderError(
        f'{root.absolute()} is neither ADE20K (with images/training and annotations/training) nor '
        'COCO (with annotations/instances_train2017.json) nor ImageNet (with train and val). '
        'docs/datasets.md shows all three.'
    )


def _listing(folder: Path, suffix: str) -> set[str]:
    """Names, without suffix, of files that are not hidden; empty for a missing folder."""
    paths = folder.iterdir() if folder.is_dir() else []  # raises an error without permission
    return {p.stem for p in paths if p.suffix == suffix and not p.name.startswith('.')}


def _ade20k_part(root: Path, split: str) -> Part:
    pictures, labels = root / 'images' / split, root / 'annotations' / split
    problems = [f'{folder}: no such folder' for folder in (pictures, labels) if not folder.is_dir()]
    names, label_names = _listing(pictures, '.jpg'), _listing(labels, '.png')
    if len(problems) < 2:
        problems += [f'{labels}/{name}.png: missing' for name in sorted(names - label_names)]
        problems += [f'{pictures}/{name}.jpg: missing' for name in sorted(label_names - names)]
    files = [
        (pictures / f'{name}.jpg', labels / f'{name}.png') for name in sorted(names & label_names)
    ]
    return Part(split, len(names), ADE_COUNTS[split], problems, [], files, check_ade20k_pair)


def check_ade20k_pair(paths: tuple[Path, Path]) -> list[str]:
    """The problems of a picture and its label map."""
    (picture, broken), (label, broken_label) = map(_open, paths)
    if broken or broken_label:
        return [problem for problem in (broken, broken_label) if problem]
    path, shown, orientation = paths[1], *_shown(picture)
    if problem := orientation_problem(paths[0], shown, orientation, label.size):
        return [problem]
    if label.size != shown:
        return [f'{path} is {_size(label.size)}, but its picture {_size(shown)}']
    if label.mode not in ('L', 'P'):
        return [f'{path} is a {label.mode} picture; labels have one channel of 8 bits']
    highest = int(np.asarray(label).max())
    if highest <= ADE_CLASSES:
        return []
    reduced = '; labels seem to be reduced already (0 to 149 and 255): the config would do it again'
    hint = reduced if highest == 255 else ''
    return [f'{path}: label {highest}, where 0 to {ADE_CLASSES} are expected{hint}']


def _coco_part(root: Path, split: str) -> Part:
    path, folder = root / f'annotations/instances_{split}.json', root / split
    part = partial(Part, split, expected=COCO_COUNTS[split], check=check_coco_picture)
    there = {f'{name}.jpg' for name in _listing(folder, '.jpg')}
    try:
        content = json.loads(path.read_text())
        problems, notes = _annotation_problems(path, content)
        files = [(folder / i['file_name'], (i['width'], i['height'])) for i in content['images']]
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        what = f'no COCO annotations ({type(error).__name__}: {error})'
        problem = f'{path}: {what if path.exists() else "missing"}'
        return part(count=len(there), problems=[problem], notes=[], files=[])
    if not folder.is_dir():
        problems.append(f'{folder}: no such folder')
        return part(count=0, problems=problems, notes=notes, files=[])
    problems += [f'{file}: missing' for file, _ in files if file.name not in there]
    if extra := there - {file.name for file, _ in files}:
        notes.append(f'{len(extra):,} pictures in {folder} are not in {path.name}')
    files = [entry for entry in files if entry[0].name in there]
    return part(count=len(files), problems=problems, notes=notes, files=files)


def _annotation_problems(path: Path, content: dict) -> tuple[list[str], list[str]]:
    """The problems of an annotation file, and notes."""
    from mmdet.datasets import CocoDataset

    images = {image['id']: image for image in content['images']}
    categories = {category['id']: category['name'] for category in content['categories']}
    problems, unknown, odd_boxes, usable = [], {}, 0, 0
    if missing := set(CocoDataset.METAINFO['classes']) - set(categories.values()):
        problems.append(f'{path}: {len(missing)} of 80 categories missing, as {min(missing)!r}')
    for annotation in content['annotations']:
        what = f'{path}: annotation {annotation.get("id")}'
        image = images.get(annotation['image_id'])
        if image is None:
            problems.append(f'{what} is of image {annotation["image_id"]}, which is not listed')
        elif annotation['category_id'] not in categories:
            unknown.setdefault(annotation['category_id'], what)
        elif not has_box(annotation):
            box = annotation.get('bbox')
            problems.append(f'{what} has the bbox {box}, not four finite numbers and an area')
        else:
            # with a tolerance of one pixel; mmdet ignores the few empty boxes of COCO
            left, top, width, height = annotation['bbox']
            fits = left + width <= image['width'] + 1 and top + height <= image['height'] + 1
            odd_boxes += not (fits and min(width, height) > 0 and min(left, top) >= -1)
            corners, size = (
                (left, top, left + width, top + height),
                (image['width'], image['height']),
            )
            usable += min(width, height) >= 1 and is_possible(corners, size)
    if not (problems or usable):
        problems.append(f'{path}: no annotation with a box in its picture')
    problems += [f'{what} is of category {c}, not listed' for c, what in unknown.items()]
    for name in ('image', 'annotation'):
        ids = [entry['id'] for entry in content[f'{name}s']]
        if len({*ids}) < len(ids):
            problems.append(f'{path}: {name} ids are not unique')
    odd = f'{odd_boxes:,} boxes in {path.name} are empty or outside of the picture'
    return problems, [odd] if odd_boxes else []


def has_box(annotation: dict) -> bool:
    """Whether mmdet can read the box of an annotation and train with it."""
    box = annotation.get('bbox') or ()
    return len(box) == 4 and all(map(math.isfinite, box)) and 'area' in annotation


def check_coco_picture(task: tuple[Path, tuple[int, int]]) -> list[str]:
    """The problem of a picture, given its size in the annotations."""
    path, size = task
    picture, problem = _open(path)
    if picture:
        shown, orientation = _shown(picture)
        problem = orientation_problem(path, shown, orientation, size)
        if shown != size and not problem:
            problem = f'{path} is {_size(shown)}, but {_size(size)} in the annotations'
    return [problem] if problem else []


def _imagenet_part(root: Path, split: str) -> Part:
    """A part with class folders or with a list of labels, as read by mmpretrain."""
    from mmpretrain.datasets import ImageNet

    dataset = ImageNet(data_root=str(root), split=split, pipeline=(), lazy_init=True)
    try:
        samples = dataset.load_data_list()
        problems = []
    except (OSError, ValueError, AssertionError, RuntimeError) as error:  # no folders, not 1000
        samples, problems = [], [f'{root / split}: {error}']
    paths = [Path(sample['img_path']) for sample in samples]
    files = [path for path in paths if path.exists()]
    problems += [f'{path}: missing' for path in sorted({*paths} - {*files})]
    absent = len({*range(1000)} - {int(sample['gt_label']) for sample in samples})
    notes = [f'{absent} of 1000 classes have no picture'] if absent else []
    expected = IMAGENET_COUNTS[split]
    return Part(split, len(files), expected, problems, notes, files, check_picture)


def check_picture(path: Path) -> list[str]:
    """The problem of a picture."""
    _, problem = _open(path)
    return [problem] if problem else []


def _open(path: Path) -> tuple[Image.Image | None, str | None]:
    """A decoded picture, or its problem."""
    try:
        if path.stat().st_size == 0:
            return None, f'{path}: an empty file'
        with Image.open(path) as picture:
            picture.load()
            picture.getexif()  # while the file is open
            return picture, None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        return None, f'{path}: damaged ({error})'


def _shown(picture: Image.Image) -> tuple[tuple[int, int], int]:
    """The displayed size of a picture, and its orientation."""
    orientation = orientation_of(picture)
    return turned(picture.size, orientation), orientation


def _size(size: tuple[int, int]) -> str:
    return f'{size[0]} x {size[1]} pixels'


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='Example: python tools/check_dataset.py data/ade/ADEChallengeData2016',
    )
    parser.add_argument('root', type=Path, help='the data_root of a config')
    parser.add_argument(
        '--subset', action='store_true', help='do not compare the numbers of pictures'
    )
    parser.add_argument(
        '--quick', action='store_true', help='check names and annotations, open no picture'
    )
    parser.add_argument(
        '--workers', type=int, default=os.cpu_count(), help='processes (default: all cores)'
    )
    parser.add_argument('--out', type=Path, metavar='FILE', help='write all problems to this file')
    args = parser.parse_args()
    if args.workers < 1:
        parser.error(f'--workers {args.workers}: must be at least 1')
    return args


def inspect(part: Part, args: argparse.Namespace) -> list[str]:
    """Check a part, print notes and problems; returns all problems."""
    problems = list(part.problems)
    if part.count != part.expected and not args.subset:
        hint = ' (if this is intended: --subset)' if part.count else ''
        problems.insert(0, f'{part.count:,} pictures, not {part.expected:,}{hint}')
    print(f'{part.name}: {part.count:,} pictures')
    if part.files and not args.quick:
        with ProcessPoolExecutor(min(args.workers, len(part.files))) as pool:
            found = pool.map(part.check, part.files, chunksize=8)
            problems += chain.from_iterable(progress(found, len(part.files)))
    for note in part.notes:
        print(f'  note: {note}')
    for problem in problems[:SHOWN]:
        print(f'  {problem}')
    if len(problems) > SHOWN:
        print(f'  ... and {len(problems) - SHOWN:,} more (all with --out FILE)')
    return problems


def main() -> None:
    args = parse_args()
    try:
        name, parts = find_parts(args.root)
    except WrongFolderError as error:
        sys.exit(f'error: {error}')
    print(f'{name} in {args.root.absolute()}')
    problems = list(chain.from_iterable(inspect(part, args) for part in parts))
    if args.out:
        args.out.write_text(''.join(f'{problem}\n' for problem in problems))
    if problems:
        word = 'problem' if len(problems) == 1 else 'problems'
        sys.exit(
            f'{len(problems):,} {word}. Download missing and damaged files again; correct the rest.'
        )
    print('All files exist' + ('.' if args.quick else ' and can be read.'))


if __name__ == '__main__':
    run(main)
