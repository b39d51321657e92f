"""Folders of label maps: pairs of files of the same image, and counts of their pixels.

The files have one channel of 1 to 16 bits, whose values (or indices into a palette) are labels.
"""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from multiprocessing import parent_process
from pathlib import Path, PurePosixPath
from runpy import run_path
from threading import Thread
from typing import Any, NamedTuple

import cv2
import numpy as np
from PIL import Image

from mmbixt.evaluation.boundary import image_sums
from mmbixt.evaluation.sums import ImageSums
from mmbixt.frameworks import INSTALL

SHOWN = 5  # most files that an error names
SHIFT_PAIRS = 8  # pairs that are read to detect labels that start at 1 instead of 0
MODES = ('1', 'L', 'P', 'I;16', 'I')  # of PIL: grey, palette, 16 bits (in old versions 'I')
GREY_SCALES = {'L;2': 85, 'L;4': 17}  # factors by which PIL multiplies grey values of 2 or 4 bits
# errors of PIL for a file that is not an image, is truncated or far too large
BROKEN = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


class LabelFilesError(ValueError):
    """Label files are missing, cannot be read or do not belong together."""


class WorkerKilledError(RuntimeError):
    """A process that counts pixels was killed."""


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
    """Names of classes: the lines of a file, or those of mmseg for 'ade20k' or 'cityscapes'."""
    if source in ('ade20k', 'cityscapes'):
        mmseg = find_spec('mmseg')
        if mmseg is None:
            raise LabelFilesError(
                f'The classes of {source} are those of mmseg, which is not installed: '
                f'{INSTALL["mmseg"]}. Or give a file with a name per line.'
            )
        # only this file: importing mmseg, with torch and mmcv, takes seconds
        file = Path(mmseg.origin).parent / 'utils/class_names.py'
        return run_path(str(file))['get_classes'](source)
    if not Path(source).is_file():
        raise LabelFilesError(
            f'There is no file {source} with a class name per line; or use ade20k or cityscapes.'
        )
    names = [line.strip() for line in Path(source).read_text().rstrip().splitlines()]
    if not names or not all(names):
        raise LabelFilesError(f'{source} has an empty line; the first line names label 0.')
    return names


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
    predicted = _listing(predictions, pred_suffix, '--pred-suffix', pred_prefix)
    predicted, true = _comparable(predicted, _listing(truths, gt_suffix, '--gt-suffix'))
    missing = []
    for parent, slash, name in (name.rpartition('/') for name in true if name not in predicted):
        missing.append(f'{parent}{slash}{pred_prefix}{name}{pred_suffix}')
    extra = [str(path) for name, path in predicted.items() if name not in true]
    problems = ''
    if missing:
        problems += (
            f'{len(missing):,} of {len(true):,} truths in {truths} have no prediction. In '
            f'{predictions} there should be{_shown(missing)}\n'
        )
    if extra:
        count = f'{len(extra):,} of {len(predicted):,} predictions'
        problems += f'{count} have no truth in {truths}:{_shown(extra)}\n'
    if problems:
        raise LabelFilesError(
            f'{problems}Both folders must have the same images. If the names differ, set '
            f'--pred-prefix (now {pred_prefix or "none"}), --pred-suffix (now {pred_suffix}), '
            f'--gt-suffix (now {gt_suffix}).'
        )
    return [Pair(name, predicted[name], path) for name, path in true.items()]


def find_images(folder: Path, suffix: str, names: Sequence[str]) -> list[Path]:
    """The image of each pair, by the names of the pairs; pictures of errors need them.

    As in `pair_files`, only the last parts of the paths count if one side has no subfolders.
    """
    files = _listing(folder, suffix, '--image-suffix')
    files, names = _comparable(files, {name: Path(name) for name in names})
    if missing := [f'{name}{suffix}' for name in names if name not in files]:
        raise LabelFilesError(
            f'{folder} has no image for {len(missing):,} of {len(names):,} truths. There should be'
            f'{_shown(missing)}\nIf the names end otherwise: --image-suffix (now {suffix}).'
        )
    return [files[name] for name in names]


def check_pairs(pairs: Sequence[Pair]) -> tuple[int, int]:
    """Check the header of each file; returns the most common size (H,W)."""
    sizes, problems = Counter(), []
    for _, prediction, truth in pairs:
        try:
            predicted, true = (_open(path, decode=False).size[::-1] for path in (prediction, truth))
            sizes[true] += 1
            if predicted != true:
                advice = 'predict at the size of the truth'
                if predicted == true[::-1]:
                    advice = 'one of them is turned, perhaps by the EXIF orientation of its image'
                raise LabelFilesError(
                    f'{prediction} is {size_text(predicted)} pixels, but {truth} '
                    f'{size_text(true)} (height x width): {advice}'
                )
        except LabelFilesError as error:
            problems.append(str(error))
    if problems:
        raise LabelFilesError(
            f'{len(problems):,} of {len(pairs):,} pairs of files cannot be used:{_shown(problems)}'
        )
    return sizes.most_common(1)[0][0]


def read_labels(path: Path) -> np.ndarray:
    """The labels (H,W) of a file."""
    picture = _open(path, decode=True)
    return np.asarray(picture, np.int32) // picture.info['scale']


def shift_hint(pairs: Sequence[Pair], reading: Reading) -> str | None:
    """A warning if predictions agree much better after adding or subtracting 1, in a few files."""
    right, pixels = np.zeros(3, np.int64), 0
    for pair in pairs[:: -(-len(pairs) // SHIFT_PAIRS)]:
        truth, prediction = labels(pair, reading)
        valid = truth != reading.ignore_index
        pixels += valid.sum()
        right += [np.sum(valid & (truth == prediction + shift)) for shift in (0, -1, 1)]
    best = int(right.argmax())
    if right[best] <= 2 * right[0]:
        return None
    shares = [f'{share:.0%}' for share in right / pixels]
    change = 'subtracted from' if best == 1 else 'added to'
    return (
        f'Predictions and truth seem to number classes differently: {shares[0]} of the pixels are '
        f'correct, {shares[best]} would be correct with 1 {change} the predictions. See '
        '--reduce-zero-label and --pred-reduce-zero-label.'
    )


def labels(pair: Pair, reading: Reading) -> tuple[np.ndarray, np.ndarray]:
    """Truth and prediction (H,W), with classes from 0."""
    truth, prediction = read_labels(pair.truth), read_labels(pair.prediction)
    if reading.reduce_truth:
        ignored = (truth == 0) | (truth == reading.ignore_index)
        truth = np.where(ignored, reading.ignore_index, truth - 1)
    return truth, prediction - reading.reduce_prediction


def pair_sums(
    pair: Pair, num_classes: int, reading: Reading, options: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Counts (K,) of one image by name; ``options`` are those of `image_sums`."""
    maps, ignored = labels(pair, reading), reading.ignore_index
    try:
        sums = image_sums(*maps, num_classes, ignore_index=ignored, **options)
    except ValueError as error:
        hint = ''
        if [ignored in labels for labels in maps] == [False, True]:
            hint = f'Only the prediction has the label {ignored}: are PRED_DIR and GT_DIR swapped? '
        raise LabelFilesError(
            f'{error}.\n  truth: {pair.truth}\n  prediction: {pair.prediction}\n'
            f'{hint}If there are more classes: --num-classes or --classes. If classes start at 1, '
            'and 0 is not a class: --reduce-zero-label for the truth, --pred-reduce-zero-label for '
            'predictions; they subtract 1 before labels are checked. If a value of the truth marks '
            'pixels to ignore: --ignore-index. Predictions need a class wherever the truth has one.'
        ) from error
    return {name: counts.astype(np.uint32) for name, counts in sums.items()}


def folder_sums(
    pairs: Sequence[Pair],
    classes: Sequence[str],
    reading: Reading,
    options: Mapping[str, Any],
    jobs: int = 1,
    on_image: Callable[[], object] = lambda: None,  # called after each image
) -> ImageSums:
    """Counts of all images, by ``jobs`` processes; ``options`` are those of `image_sums`."""
    count = partial(pair_sums, num_classes=len(classes), reading=reading, options=options)
    done = []
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)  # before the processes are forked: OpenCV's threads do not survive a fork
    # not multiprocessing.Pool: after an error it kills processes that may hold locks, and can hang;
    # not threads: most of the work holds Python's lock
    pool = ProcessPoolExecutor(min(jobs, len(pairs)), initializer=_start_worker)
    try:
        # Ctrl-C is sent to all processes of a terminal: only this one handles it, and ends the rest
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            found = pool.map(count, pairs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for sums in found:
            done.append(sums)
            on_image()
    except (MemoryError, cv2.error) as error:
        if isinstance(error, cv2.error) and 'Insufficient memory' not in str(error):
            raise
        raise LabelFilesError(
            f'Out of memory, after {len(done):,} of {len(pairs):,} images: try fewer --jobs (now '
            f'{jobs}). {error}'
        ) from error
    except BrokenProcessPool as error:
        raise WorkerKilledError(
            f'A process that counts pixels was killed, after {len(done):,} of {len(pairs):,} '
            f'images. Out of memory? Try fewer --jobs (now {jobs}).'
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
        cv2.setNumThreads(threads)
    counted = ImageSums.stack([pair.name for pair in pairs], classes, done)
    if not counted.counts['all/true'].any():
        zero = ' and 0' if reading.reduce_truth else ''
        raise LabelFilesError(
            f'All pixels of all {len(pairs):,} truths have the label {reading.ignore_index}{zero}, '
            'which does not count: there is nothing to score. See --ignore-index.'
        )
    return counted


def _start_worker() -> None:
    """End this worker process when its parent ends, however that happens."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent may have set another handler
    Thread(target=lambda: (parent_process().join(), os._exit(1)), daemon=True).start()


def size_text(size: tuple[int, int]) -> str:
    return f'{size[0]} x {size[1]}'


def _listing(folder: Path, suffix: str, option: str, prefix: str = '') -> dict[str, Path]:
    """Files with a prefix and suffix that are not hidden, by their path without these."""
    if not folder.is_dir():
        raise LabelFilesError(f'There is no folder {folder}.')
    visible = [path.relative_to(folder).as_posix() for path in sorted(_visible(folder))]
    found = {}
    for path in visible:
        parent, slash, name = path.removesuffix(suffix).rpartition('/')
        if path.endswith(suffix) and name.startswith(prefix):
            found[parent + slash + name.removeprefix(prefix)] = folder / path
    if not found:
        other = f'; one of its files is {visible[0]}. Set {option}' if visible else ''
        ends = f'begins with {prefix} and ends with {suffix}' if prefix else f'ends with {suffix}'
        raise LabelFilesError(f'No file in {folder} {ends}{other}.')
    return found


def _visible(folder: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Files below a folder that are not hidden. Links are followed, but not to folders above."""
    real = folder.resolve()
    for path in folder.iterdir() if real not in above else ():
        if path.name[0] == '.':
            continue
        if path.is_dir():
            yield from _visible(path, (*above, real))
        elif path.is_file():
            yield path


def _comparable(*folders: dict[str, Path]) -> Sequence[dict[str, Path]]:
    """The files by their paths, or by their names alone if one of the folders has no subfolders."""
    if all(any('/' in name for name in files) for files in folders):
        return folders
    return [_flat(files) for files in folders]


def _flat(files: Mapping[str, Path]) -> dict[str, Path]:
    found = {}
    for name, path in files.items():
        other = found.setdefault(PurePosixPath(name).name, path)
        if other != path:
            raise LabelFilesError(
                f'{other} and {path} have the same name, and the other folder has no subfolders. '
                'Give both folders the same structure.'
            )
    return found


def _shown(lines: Sequence[str]) -> str:
    """The first lines, indented, and the number of the others."""
    more = [f'... and {len(lines) - SHOWN:,} more'] if len(lines) > SHOWN else []
    return ''.join(f'\n  {line}' for line in [*lines[:SHOWN], *more])


def _open(path: Path, decode: bool) -> Image.Image:
    """A label file; ``decode=False`` reads its header only."""
    try:
        with Image.open(path) as picture:
            picture.info['scale'] = GREY_SCALES.get(picture.tile[0][3], 1) if picture.tile else 1
            if decode:
                picture.load()
    except BROKEN as error:
        raise LabelFilesError(f'{path} cannot be read ({error}): write it again') from error
    if picture.mode not in MODES:
        raise LabelFilesError(
            f'{path} is an image in mode {picture.mode}, but labels have one channel of up to 16 '
            'bits: save the labels themselves, not the colours of the classes'
        )
    if picture.format == 'JPEG':
        raise LabelFilesError(f'{path} is a JPEG file; JPEG changes labels: save PNG files')
    return picture
