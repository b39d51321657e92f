"""Bad images and labels stop a run with an error that names the file, or are skipped."""

import copy
import errno
import logging
import random
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from mmengine.dataset import BaseDataset
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.runner import BaseLoop, Runner
from torch import nn

from mmbixt.datasets.problems import (
    BadSampleError,
    BoxProblem,
    LabelProblem,
    built_leaves,
    check_annotations,
    image_problem,
    label_size_problem,
    reading_problem,
)
from mmbixt.engine.exact_resume import ExactResumeHook
from mmbixt.frameworks import is_of_project
from mmbixt.registry import HOOKS

_SHOWN = 20  # files of a list
# error numbers that are caused by the file, not by the machine; decoders set None or EINVAL
_FILE_ERRORS = (
    *(None, errno.EINVAL, errno.ENOENT, errno.EISDIR, errno.ENOTDIR),
    *(errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG),
)


@HOOKS.register_module()
class SampleCheckHook(Hook):
    """Check each image and its labels when they are read, before they are transformed.

    - Images: missing, empty, damaged, with pixels that are not finite.
    - Label maps of mmseg: missing, damaged, of several channels or 16 bits, for another size than
      the image's or an image that is turned by its EXIF data, with ids that are no class.
      Labels that a transform of a project converts are checked behind it.
    - Annotations of mmdet: for another size or orientation, boxes that are not finite or outside
      of the image; before training, classes that the file does not name, and a file without
      annotations.

    Errors of the machine (no memory, too many open files) or the config always stop a run.

    The data set replaces a skipped image by another one, which it draws with the generator of the
    augmentations; with :class:`ExactResumeHook` it is the same one after ``--resume``. Validation
    and tests skip no image, because their results would not be of the whole data set.

    Args:
        on_bad: 'raise' an error, or 'skip' bad images of the training. ``skipped_images.txt``
            in the folder of the log lists them, and so does the log when training ends.
        max_skipped: with 'skip', the largest number of images to skip in a run.
    """

    priority = 'LOW'  # after hooks that switch the pipeline

    def __init__(self, on_bad: str = 'raise', max_skipped: int = 100) -> None:
        if on_bad not in ('raise', 'skip'):
            raise ValueError(f"SampleCheckHook: on_bad={on_bad!r} is not one of 'raise', 'skip'.")
        self.on_bad, self.max_skipped = on_bad, max_skipped
        self.skipped: SkippedImages | None = None

    def before_run(self, runner: Runner) -> None:
        if self.on_bad == 'skip':
            file = Path(runner.log_dir, 'skipped_images.txt').absolute()
            self.skipped = SkippedImages(file, self.max_skipped)
        training = runner._train_loop
        for loop in (training, runner._val_loop, runner._test_loop):
            if isinstance(loop, BaseLoop):
                for dataset in built_leaves(loop.dataloader.dataset):
                    if loop is not runner._test_loop:  # tests may have no annotations
                        check_annotations(dataset)
                    watch(dataset, runner.model, self.skipped if loop is training else None)
        has_workers = hasattr(training, 'dataloader_iterator') and training.dataloader.num_workers
        if has_workers and not any(isinstance(hook, ExactResumeHook) for hook in runner.hooks):
            raise TypeError(
                'SampleCheckHook: the workers of the data loader were started before the checks '
                'were added to the data set; add ExactResumeHook, which starts them again.'
            )

    def before_train_epoch(self, runner: Runner) -> None:
        """Add the checks to a pipeline that a hook has switched to."""
        if isinstance(runner.train_loop, BaseLoop):
            for dataset in built_leaves(runner.train_loop.dataloader.dataset):
                watch(dataset, runner.model, self.skipped)

    def after_train(self, runner: Runner) -> None:
        if self.skipped is not None and is_main_process() and (lines := self.skipped.read()):
            text = [f'Skipped images: {len(lines):,}', *lines[:_SHOWN]]
            if len(lines) > _SHOWN:
                text.append(f'... and {len(lines) - _SHOWN:,} more in {self.skipped.file}')
            runner.logger.warning('\n  '.join(text))


class SkippedImages:
    """The list of skipped images, in a file: workers of the data loader share no memory."""

    def __init__(self, file: Path, limit: int) -> None:
        self.file, self.limit = file, limit

    def read(self) -> list[str]:
        return sorted({*self.file.read_text().splitlines()}) if self.file.exists() else []

    def add(self, problem: str) -> None:
        before = self.read()
        if problem in before:
            return
        if len(before) >= self.limit:
            raise BadSampleError(
                f'{problem}. Images that were skipped before: {len(before):,}, which is '
                f'max_skipped of SampleCheckHook; {self.file} lists them.'
            )
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open('a') as file:
            file.write(f'{problem}\n')
        print_log(f'Skipped: {problem}', 'current', logging.WARNING)


class Checked:
    """A transform that loads images or labels, followed by a check of what it has loaded."""

    def __init__(
        self,
        load: Callable[[dict], dict | None],
        path_key: str,
        find_problem: Callable[[dict], str | None],
        skipped: SkippedImages | None,
    ) -> None:
        self.load, self.path_key = load, path_key
        self.find_problem, self.skipped = find_problem, skipped

    def __call__(self, results: dict) -> dict | None:
        cause = None
        try:
            loaded = self.load(results)
        except Exception as error:  # decoders raise many types of errors for damaged files
            path = results.get(self.path_key) or results.get('img_path')
            if problem := _setting_problem(self.load, error, results, path):
                raise BadSampleError(problem) from error
            if is_machine_error(error):
                raise
            cause, problem = error, reading_problem(path, error)
        else:
            problem = None if loaded is None else self.find_problem(loaded)
        return loaded if problem is None else _report(problem, self.skipped, cause)


class ConvertedLabels:
    """The problem of a label map that a project loads, or converts after it was loaded.

    Its transforms are called only where the ids, as they are loaded, have a problem.

    Args:
        find_problem: of label maps.
        own: the transforms behind the one that loads labels.
        is_loaded_by_project: what its files contain, and of which size, is not known.
    """

    def __init__(
        self, find_problem: LabelProblem, own: list[Callable], is_loaded_by_project: bool
    ) -> None:
        self.find_problem, self.own = find_problem, own
        self.is_loaded_by_project = is_loaded_by_project

    def __call__(self, results: dict, turns: bool) -> str | None:
        if self.is_loaded_by_project:
            problem = self._of_ids(results, results)
        else:
            problem = self.find_problem(results, turns)
            if problem and (wrong_size := label_size_problem(results, turns)):
                return wrong_size
        return self._of_ids(results, self._converted(results)) if problem and self.own else problem

    def _of_ids(self, loaded: dict, converted: dict) -> str | None:
        labels = np.asarray(converted.get('gt_seg_map'))
        if labels.ndim != 2 or labels.dtype.kind not in 'bui':  # such as shares of classes
            return None
        return self.find_problem.of_ids(loaded.get('seg_map_path'), labels)

    def _converted(self, results: dict) -> dict:
        """The results behind the transforms; empty if these need more.

        Random numbers of the pipeline stay as they are.
        """
        converted, states = copy.deepcopy(results), (random.getstate(), np.random.get_state())
        try:
            with torch.random.fork_rng(devices=[]):
                for step in self.own:
                    converted = step(converted)
            return dict(converted)
        except Exception:  # of any type: the run calls them in their place, and shows it
            return {}
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


def _setting_problem(load: object, error: Exception, results: dict, path: str) -> str | None:
    """The problem if it is in the config or the environment, not in the file."""
    backend, color = getattr(load, 'imdecode_backend', None), getattr(load, 'color_type', None)
    if backend == 'tifffile' and find_spec(backend) is None:
        return "imdecode_backend='tifffile' needs this package: pip install tifffile"
    if isinstance(error, TypeError) and 'len()' in str(error) and 'instances' in results:
        return (  # numbers where mmdet expects polygons
            f'Annotations of {path} have a segmentation that is no list of polygons '
            '[[x, y, x, y, ...], ...] and no RLE.'
        )
    if not isinstance(error, KeyError):
        return None
    if error.args == (color,):
        return f'{type(load).__name__} has no color_type={color!r}.'
    if error.args == ('mask',) and 'instances' in results:  # of mmdet
        return (
            f'Annotations of {path} have no segmentation, and LoadAnnotations needs it '
            '(with_mask=True in the pipeline). Add polygons or RLE to the annotations, or train a '
            'detector that predicts boxes only.'
        )
    return (
        f'{type(load).__name__} needs {error}, which the data set does not provide for {path}: see '
        'its data_prefix and pipeline in the config.'
    )


def _report(
    problem: str, skipped: SkippedImages | None, cause: Exception | None = None
) -> dict | None:
    """Raise an error, or note a skipped image: the data set takes another one for None."""
    if skipped is None:
        raise BadSampleError(
            f'{problem}. Repair the file or remove the image from the data '
            '(tools/check_dataset.py CONFIG reads all files). To train without '
            "such images (validation needs all): default_hooks.sample_check.on_bad='skip'."
        ) from cause
    skipped.add(problem)
    return None


def is_machine_error(error: Exception) -> bool:
    """Whether reading the same file again may succeed."""
    if isinstance(error, (MemoryError, ConnectionError, TimeoutError)):
        return True
    return isinstance(error, OSError) and error.errno not in _FILE_ERRORS


def _is_own(step: object) -> bool:
    """Whether a transform is, or applies, one of a project."""
    inner = getattr(step, 'transforms', None)  # of a Compose, or a list of them
    inner = inner if isinstance(inner, list) else [inner] * (inner is not None)
    return is_of_project(step) or any(map(_is_own, inner))


def _steps_of_project(transforms: list) -> list:
    """Transforms of a project between the one that loads labels and the one that packs."""
    from mmcv.transforms import LoadAnnotations

    found, is_loaded = [], False
    for step in transforms:
        kinds = [kind.__name__ for kind in type(step).__mro__]
        if any(name.startswith('Pack') for name in kinds):
            break
        if is_loaded and _is_own(step):
            found.append(step)
        is_loaded = is_loaded or isinstance(step, LoadAnnotations)
    return found


def watch(dataset: BaseDataset, model: nn.Module, skipped: SkippedImages | None) -> None:
    """Wrap the loading transforms of a data set in checks; calling it twice wraps them once."""
    from mmcv.transforms import LoadAnnotations, LoadImageFromFile

    transforms, turns = dataset.pipeline.transforms, False
    find_problem = BoxProblem()
    if hasattr(dataset, 'reduce_zero_label'):  # of mmseg
        heads = [x for x in model.modules() if hasattr(x, 'num_classes')]
        heads = [head for head in heads if hasattr(head, 'ignore_index')]
        classes = len(dataset.metainfo.get('classes') or ()) or 256
        if heads:  # auxiliary heads may have fewer classes, such as a head for boundaries
            head = max(heads, key=lambda head: head.num_classes)
            classes = min(classes, head.num_classes)
            if 1 in (head.num_classes, getattr(head, 'out_channels', None)):
                classes = max(classes, 2)  # one logit: foreground or not
        ignored = {dataset.ignore_index, *(head.ignore_index for head in heads)}
        loaders = [x for x in transforms if isinstance(x, LoadAnnotations)]
        is_own = any(map(is_of_project, loaders))
        find_problem = LabelProblem(classes, ignored, dataset.reduce_zero_label)
        own = _steps_of_project(transforms)
        if own or is_own:
            find_problem = ConvertedLabels(find_problem, own, is_own)
    is_final = not any(map(_is_own, transforms))
    for i, load in enumerate(transforms):
        if isinstance(load, LoadImageFromFile):
            turns = load.color_type in ('color', 'grayscale')
            turns = turns and load.imdecode_backend in ('cv2', 'pillow')
            check = partial(image_problem, turns=turns, is_final=is_final)
            transforms[i] = Checked(load, 'img_path', check, skipped)
        elif isinstance(load, LoadAnnotations):
            transforms[i] = Checked(
                load, 'seg_map_path', partial(find_problem, turns=turns), skipped
            )
