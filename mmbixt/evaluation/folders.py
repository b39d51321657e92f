"""Folders of label maps: pairs of files of the same image, and counts of their pixels.

The files have one channel of 1 to 16 bits, whose values (or indices into a palette) are labels.
"""

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from glob import escape, glob
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import cv2
import numpy as np
from PIL import Image
from tqdm import tqdm

from mmbixt.errors import UserError
from mmbixt.evaluation.boundary import image_sums
from mmbixt.evaluation.sums import ImageSums

IGNORED = -1  # true label of pixels that do not count, after reading
GREY_SCALES = {'L;2': 85, 'L;4': 17}  # factors by which PIL multiplies grey values of 2 or 4 bits
# errors of PIL for a file that is not an image, is truncated or far too large
BROKEN = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


class Pair(NamedTuple):
    """Two files of one image."""

    name: str  # of both, without their suffixes
    prediction: Path
    truth: Path


@dataclass(frozen=True)
class Reading:
    """Meaning of the values in label files."""

    ignore_index: int = 255  # true label of pixels that do not count
    # true classes are 1 to K instead of 0 to K - 1, and 0 does not count, as in ADE20K's own files
    reduce_truth: bool = False
    reduce_prediction: bool = False  # predicted classes are 1 to K


def read_classes(source: str) -> list[str]:
    """Names of classes: the lines of a file, or those of a data set that mmseg knows."""
    if Path(source).is_file():
        return read_class_file(source)[0]
    try:
        from mmseg.utils import get_classes  # with torch, which takes seconds

        return get_classes(source)
    except (ImportError, ValueError) as error:
        problem = f'{source} is neither a file nor a data set that mmseg knows ({error})'
        raise UserError(f'--classes: {problem}.') from error


def read_class_file(path: str) -> tuple[list[str], list[tuple[int, ...]]]:
    """Names of classes, and their colours if the lines have them, such as ``sky 128 128 128``."""
    text = Path(path).read_text(encoding='utf-8-sig')  # without a byte order mark
    pattern = r'(.*?)(?:\s+(\d+)[\s,]+(\d+)[\s,]+(\d+))?'
    lines = [re.fullmatch(pattern, x.strip()).groups() for x in text.rstrip().splitlines()]
    colours = [tuple(map(int, colour)) for _, *colour in lines if colour[0]]
    if colours and (len(colours) < len(lines) or np.max(colours) > 255):
        raise UserError(f'{path}: either no class or each has a colour, numbers from 0 to 255.')
    return [name for name, *_ in lines], colours


def pair_files(
    predictions: Path,
    truths: Path,
    pred_suffix: str = '.png',
    gt_suffix: str = '.png',
    pred_prefix: str = '',
) -> list[Pair]:
    """Pair the files of two folders, and of their subfolders, by their paths.

    Prefix and suffixes are removed before paths are compared; files without them are ignored. If
    one of the folders has no subfolders, only the names of the files in the other are compared.
    """
    predicted = _listing(predictions, pred_suffix, pred_prefix)
    predicted, true = _comparable(predicted, _listing(truths, gt_suffix))
    if unpaired := sorted(predicted.keys() ^ true.keys()):
        raise UserError(
            f'{predictions} and {truths} have {len(predicted):,} and {len(true):,} files, of which '
            f'{len(unpaired):,} are in one of them only, for example {unpaired[0]}. See '
            '--pred-prefix, --pred-suffix and --gt-suffix'
        )
    return [Pair(name, predicted[name], path) for name, path in true.items()]


def find_images(folder: Path, suffix: str, names: Sequence[str]) -> list[Path]:
    """The image of each pair, by the names of the pairs; paths are compared as in `pair_files`."""
    images, names = _comparable(_listing(folder, suffix), {name: Path(name) for name in names})
    if missing := [name for name in names if name not in images]:
        raise UserError(f'{folder} has no {missing[0]}{suffix}. See --image-suffix')
    return [images[name] for name in names]


def _listing(folder: Path, suffix: str, prefix: str = '') -> dict[str, Path]:
    """Files with a prefix and suffix that are not hidden, by their path without these."""
    pattern = f'**/{escape(prefix)}*{escape(suffix)}'
    files = {}
    for path in sorted(glob(pattern, root_dir=folder, recursive=True)):
        parent, slash, name = path.removesuffix(suffix).rpartition('/')
        files[parent + slash + name.removeprefix(prefix)] = folder / path
    if not files:
        raise UserError(f'There are no files {prefix}*{suffix} in {folder}')
    return files


def _comparable(*folders: dict[str, Path]) -> Sequence[dict[str, Path]]:
    """The files by their paths, or by their names alone if one of the folders has no subfolders."""
    if all(any('/' in name for name in files) for files in folders):
        return folders
    return [_flat(files) for files in folders]


def _flat(files: Mapping[str, Path]) -> dict[str, Path]:
    by_name = {}
    for name, path in files.items():
        other = by_name.setdefault(PurePosixPath(name).name, path)
        if other != path:
            raise UserError(
                f'{other} and {path} have the same name, and the other folder has no subfolders'
            )
    return by_name


def read_labels(path: Path) -> np.ndarray:
    """The labels (H,W) of a file."""
    try:
        with Image.open(path) as picture:
            # before the pixels are read, which empties `tile`
            scale = GREY_SCALES.get(picture.tile[0][3], 1) if picture.tile else 1
            labels = np.asarray(picture, np.int32) // scale
    except BROKEN as error:
        raise UserError(f'{path} cannot be read: {error}') from error
    if labels.ndim != 2 or picture.format == 'JPEG':
        raise UserError(
            f'{path} is a {picture.format} image in mode {picture.mode}: labels are PNG files with '
            'one channel (from colours: tools/convert_labels.py)'
        )
    return labels


def read_pair(pair: Pair, reading: Reading) -> tuple[np.ndarray, np.ndarray]:
    """Truth and prediction (H,W), with classes from 0; IGNORED where the truth does not count."""
    truth, prediction = read_labels(pair.truth), read_labels(pair.prediction)
    ignored = truth == reading.ignore_index
    if reading.reduce_truth:
        ignored |= truth == 0
        truth -= 1
    if reading.reduce_prediction:
        prediction -= 1
    return np.where(ignored, IGNORED, truth), prediction


def pair_sums(
    pair: Pair, num_classes: int, reading: Reading, options: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Counts (K,) of one image by name; ``options`` are those of `image_sums`."""
    maps = read_pair(pair, reading)
    try:
        return image_sums(*maps, num_classes, ignore_index=IGNORED, **options)
    except ValueError as error:
        raise UserError(
            f'{error}.\n  truth: {pair.truth}\n  prediction: {pair.prediction}\nSee --num-classes, '
            '--ignore-index, --reduce-zero-label and --pred-reduce-zero-label'
        ) from error


def folder_sums(
    pairs: Sequence[Pair],
    classes: Sequence[str],
    reading: Reading,
    options: Mapping[str, Any],
    jobs: int = 1,
) -> ImageSums:
    """Counts of all images, by ``jobs`` processes; ``options`` are those of `image_sums`."""
    count = partial(pair_sums, num_classes=len(classes), reading=reading, options=options)
    cv2.setNumThreads(1)  # OpenCV's threads do not survive the fork of the processes
    with ProcessPoolExecutor(jobs) as pool:
        sums = list(tqdm(pool.map(count, pairs), total=len(pairs)))
    return ImageSums.stack([pair.name for pair in pairs], classes, sums)
