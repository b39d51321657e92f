"""Before training: check what was built, and validate with two batches."""

import logging
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import torch
from mmengine.dist import get_world_size
from mmengine.hooks import CheckpointHook, Hook
from mmengine.runner import Runner, ValLoop
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.hooks import RemovableHandle

from mmbixt.check.mistakes import (
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
      there would fail after hours: pipelines, metrics, ``save_best``, strides of heads.

    Args:
        batches: validation batches; 0 runs none.
    """

    def __init__(self, batches: int = 2) -> None:
        self.batches = batches

    def before_train(self, runner: Runner) -> None:
        loops = dict(train=runner.train_loop, val=runner.val_loop).items()
        data = {split: x.dataloader.dataset for split, x in loops if hasattr(x, 'dataloader')}
        runner.logger.info(', '.join(f'{len(x):,} images for {split}' for split, x in data.items()))
        if runner.iter:  # resumed
            return
        classes = {split: classes_of(dataset) for split, dataset in data.items()}
        problems = [*head_problems(unwrapped(runner.model), classes), *order_problems(classes)]
        for dataset in (leaf for whole in data.values() for leaf in leaves(whole)):
            problems += dataset_problems(dataset)
        if problems:
            raise ConfigError('\n'.join(problems))
        lengths = {True: runner.max_epochs, False: runner.max_iters}
        for problem in schedule_problems(runner.param_schedulers, lengths):
            runner.logger.warning(problem)
        if self.batches and isinstance(runner.val_loop, ValLoop):
            self._validate(runner)

    def _validate(self, runner: Runner) -> None:
        """Evaluate a few batches, and check sizes and scores."""
        runner.logger.info(f'Sanity check: {self.batches} validation batches')
        loop, model, level, count = runner.val_loop, runner.model, runner.logger.level, 0
        model.eval()
        runner.logger.setLevel(logging.CRITICAL)  # scores and counts of two batches mean nothing
        counting = {x: x.sums_file for x in loop.evaluator.metrics if hasattr(x, 'sums_file')}
        for metric in counting:
            metric.sums_file = None
        sides, watching = watch(unwrapped(model))
        with torch.no_grad(), watching, redirect_stdout(StringIO()):
            for _, batch in zip(range(self.batches), loop.dataloader, strict=False):
                outputs = model.val_step(batch)
                loop.evaluator.process(data_samples=outputs, data_batch=batch)
                count += len(outputs) * get_world_size()
            scores = loop.evaluator.evaluate(min(count, len(loop.dataloader.dataset)))
        for metric, file in counting.items():
            metric.sums_file = file
        runner.logger.setLevel(level)
        model.train()
        problems = [*range_problems(unwrapped(model), batch)]
        problems += stride_problems(unwrapped(model), **sides)
        hooks = [hook for hook in runner.hooks if isinstance(hook, CheckpointHook)]
        best = {name for hook in hooks for name in hook.save_best or ()} - {'auto', *scores}
        if scores and best:  # metrics report none where an untrained detector finds nothing
            problems.append(
                f'default_hooks.checkpoint.save_best has {", ".join(best)}, which val_evaluator '
                f'does not report; it reports, for example, {", ".join([*scores][:5])}.'
            )
        if problems:
            raise ConfigError('\n'.join(problems))


def range_problems(model: nn.Module, batch: dict[str, Any]) -> Iterator[str]:
    """A message if images up to 255 are normalised like images up to 1."""
    mean = getattr(getattr(model, 'data_preprocessor', None), 'mean', None)
    if mean is not None and 0 < mean.max() <= 1 and max(x.max() for x in batch['inputs']) > 10:
        yield 'model.data_preprocessor.mean is for images up to 1, but these are up to 255.'


def watch(model: nn.Module) -> tuple[dict[str, Any], RemovableHandle]:
    """The heights of images and of the maps that heads get, as noted; what ends the noting."""
    sides: dict[str, Any] = dict(height=0, heights=[])
    backbone = getattr(model, 'backbone', None)
    last = getattr(model, 'neck', None) or backbone

    def note(part: nn.Module, inputs: tuple, maps: Any) -> None:
        if part is backbone:
            sides['height'] = inputs[0].shape[-2]
        if part is last:
            sides['heights'] = [x.shape[-2] for x in maps if isinstance(x, Tensor) and x.ndim > 1]

    return sides, register_module_forward_hook(note)


def stride_problems(model: nn.Module, height: int, heights: list[int]) -> Iterator[str]:
    """A message for each part with other strides than those of its maps, of these heights."""
    for name, part in model.named_modules() if heights else ():
        if 'semantic' in name:  # HTC's and SCNet's extractor of regions, from the map of a head
            continue
        index = getattr(part, 'in_index', None)  # of mmseg's heads
        maps = [heights[i] for i in index] if isinstance(index, (list, tuple)) else heights
        if hasattr(part, 'prior_generator'):  # of anchors or points
            strides = [stride[1] for stride in part.prior_generator.strides]
        else:  # of an extractor of regions, or of mmseg's SemanticFPN
            strides = getattr(part, 'featmap_strides', getattr(part, 'feature_strides', []))
        # small maps are rounded up; a wrong stride is wrong by a factor of 2
        pairs = zip(strides, maps, strict=False)
        apart = [abs(s * y - height) / max(6 * s, height) for s, y in pairs]
        if max(apart, default=0) > 0.25:
            real = ', '.join(f'{height / y:.0f}' for y in maps)
            yield (
                f'model.{name} has the strides {strides}, but its feature maps have {real}. Set '
                'these strides, or make maps of other strides by mmbixt.FeaturePyramidAdapter '
                '(out_strides), as the first neck.'
            )
