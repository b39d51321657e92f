"""Before training: check what was built, and validate with two batches."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import Any

import torch
from mmengine.dist import get_world_size
from mmengine.evaluator import BaseMetric
from mmengine.hooks import CheckpointHook, Hook
from mmengine.runner import Runner, ValLoop
from torch import Tensor, nn

from mmbixt.check.built import (
    classes_of,
    dataset_problems,
    head_problems,
    leaves,
    order_problems,
    schedule_problems,
    unwrapped,
)
from mmbixt.config import ConfigError
from mmbixt.registry import HOOKS


@HOOKS.register_module()
class SanityHook(Hook):
    """Find mistakes before the first step of a training that is not resumed.

    - Numbers of classes of heads and data, their order in training and validation and in COCO
      files, schedules that reach 0 too early.
    - Two validation batches run through the model and the evaluator (as in Lightning). What fails
      there would fail after hours: pipelines, metrics, ``save_best``, strides of anchors.

    Args:
        batches: validation batches; 0 runs none.
    """

    def __init__(self, batches: int = 2) -> None:
        self.batches = batches

    def before_train(self, runner: Runner) -> None:
        data = _data_sets(runner)
        counts = ', '.join(f'{len(x):,} images for {split}' for split, x in data.items())
        runner.logger.info(counts)
        if runner.iter:  # resumed
            return
        problems = [*_built_problems(runner.model, data)]
        if problems:
            raise ConfigError('\n'.join(problems))
        lengths = {True: runner.max_epochs, False: runner.max_iters}
        for problem in schedule_problems(runner.param_schedulers, lengths):
            runner.logger.warning(problem)
        if self.batches and isinstance(runner.val_loop, ValLoop):
            self._validate(runner)

    def _validate(self, runner: Runner) -> None:
        """Evaluate a few batches, and check what the hooks need of the scores."""
        runner.logger.info(f'Sanity check: {self.batches} validation batches')
        loop, model, count = runner.val_loop, runner.model, 0
        model.eval()
        quiet = _quiet(runner.logger, loop.evaluator.metrics)
        with torch.no_grad(), _noted_sides(unwrapped(model)) as sides, quiet:
            for _, batch in zip(range(self.batches), loop.dataloader, strict=False):
                outputs = model.val_step(batch)
                loop.evaluator.process(data_samples=outputs, data_batch=batch)
                count += len(outputs) * get_world_size()
            scores = loop.evaluator.evaluate(min(count, len(loop.dataloader.dataset)))
        model.train()
        problems = [*_stride_problems(unwrapped(model), sides), *_best_problems(runner, scores)]
        if problems:
            raise ConfigError('\n'.join(problems))


def _data_sets(runner: Runner) -> dict[str, Any]:
    loops = dict(train=runner.train_loop, val=runner.val_loop).items()
    return {split: x.dataloader.dataset for split, x in loops if hasattr(x, 'dataloader')}


def _built_problems(model: nn.Module, data: dict[str, Any]) -> Iterator[str]:
    classes = {split: classes_of(dataset) for split, dataset in data.items()}
    for dataset in (leaf for whole in data.values() for leaf in leaves(whole)):
        yield from dataset_problems(dataset)
    yield from head_problems(unwrapped(model), classes)
    yield from order_problems(classes)


def _best_problems(runner: Runner, scores: dict[str, Any]) -> Iterator[str]:
    """A message for each name in ``save_best`` that is not among the scores.

    Metrics report none where an untrained detector finds nothing.
    """
    for hook in (hook for hook in runner.hooks if isinstance(hook, CheckpointHook)):
        for name in (hook.save_best or ()) if scores else ():
            if name not in ('auto', *scores):
                yield (
                    f'default_hooks.checkpoint.save_best = {name!r} is a score that val_evaluator '
                    f'does not report; it reports, for example, {", ".join([*scores][:5])}.'
                )


@contextmanager
def _quiet(logger: logging.Logger, metrics: list[BaseMetric]) -> Iterator[None]:
    """Scores of two batches mean nothing: they are neither printed nor written to sums files."""
    level, counting = logger.level, [x for x in metrics if hasattr(x, 'sums_file')]
    files = [metric.sums_file for metric in counting]
    logger.setLevel(logging.CRITICAL)
    for metric in counting:
        metric.sums_file = None
    try:
        with redirect_stdout(StringIO()):  # of pycocotools
            yield
    finally:
        logger.setLevel(level)
        for metric, file in zip(counting, files, strict=True):
            metric.sums_file = file


@contextmanager
def _noted_sides(model: nn.Module) -> Iterator[dict[str, list[int]]]:
    """The heights of the backbone's images and of the feature maps that parts with strides get."""
    sides, handles = {}, []
    for name, part in model.named_modules():
        if name == 'backbone' or _strides(part):

            def note(_: nn.Module, inputs: tuple, name: str = name) -> None:
                maps = [inputs[0]] if isinstance(inputs[0], Tensor) else inputs[0]
                sides[name] = [x.shape[2] for x in maps]

            handles.append(part.register_forward_pre_hook(note))
    try:
        yield sides
    finally:
        for handle in handles:
            handle.remove()


def _strides(part: nn.Module) -> list[int]:
    """The strides of a head with anchors or points, or of an extractor of regions; else none."""
    if hasattr(part, 'prior_generator'):
        return [stride[1] for stride in part.prior_generator.strides]
    return list(getattr(part, 'featmap_strides', ()))


def _stride_problems(model: nn.Module, sides: dict[str, list[int]]) -> Iterator[str]:
    """A message for each part with wrong strides: anchors and regions would be in wrong places."""
    (height,) = sides.pop('backbone', [0])
    for name, heights in sides.items():
        strides = _strides(model.get_submodule(name))
        # small maps are rounded up; a wrong stride is wrong by a factor of 2
        pairs = zip(strides, heights, strict=False)
        apart = [abs(s * y - height) / max(6 * s, height) for s, y in pairs]
        if height and max(apart, default=0) > 0.25:
            real = ', '.join(f'{height / y:.0f}' for y in heights)
            yield (
                f'model.{name} has the strides {strides}, but its feature maps have {real}. Set '
                'these strides, or make maps of other strides by mmbixt.FeaturePyramidAdapter '
                '(out_strides), as the first neck.'
            )
