"""Before training: check what was built, and validate with two batches."""

import logging
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import torch
from mmengine.dataset import BaseDataset
from mmengine.dist import get_world_size
from mmengine.hooks import CheckpointHook, Hook
from mmengine.runner import BaseLoop, Runner
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
    - Two validation batches run through the model and the evaluator, as with Lightning's
      ``num_sanity_val_steps``. What fails there would fail after hours: pipelines, metrics,
      ``save_best``, anchors of other strides than the feature maps.

    Args:
        batches: validation batches; 0 runs none.

    Example:
        >>> default_hooks = dict(sanity=dict(type='mmbixt.SanityHook'))
    """

    def __init__(self, batches: int = 2) -> None:
        self.batches = batches

    def before_train(self, runner: Runner) -> None:
        if runner.iter:  # resumed
            return
        problems = [*_built_problems(runner)]
        if problems:
            raise ConfigError('\n'.join(problems))
        lengths = {True: runner.max_epochs, False: runner.max_iters}
        for problem in schedule_problems(runner.param_schedulers, lengths):
            runner.logger.warning(problem)
        if self.batches and runner.val_loop is not None:
            self._validate(runner)

    def _validate(self, runner: Runner) -> None:
        """Evaluate a few batches, and check what the hooks need of the scores."""
        runner.logger.info(f'Sanity check: {self.batches} validation batches')
        loop, model = runner.val_loop, runner.model
        count = 0
        model.eval()
        with torch.no_grad(), _Strides(unwrapped(model)) as strides, _quiet(runner.logger):
            for _, batch in zip(range(self.batches), loop.dataloader, strict=False):
                outputs = model.val_step(batch)
                loop.evaluator.process(data_samples=outputs, data_batch=batch)
                count += len(outputs) * get_world_size()
            scores = loop.evaluator.evaluate(min(count, len(loop.dataloader.dataset)))
        model.train()
        problems = [*strides.problems(), *_best_problems(runner, scores)]
        if problems:
            raise ConfigError('\n'.join(problems))


def _built_problems(runner: Runner) -> Iterator[str]:
    loops = dict(train=runner.train_loop, val=runner.val_loop)
    data = {
        split: loop.dataloader.dataset
        for split, loop in loops.items()
        if isinstance(loop, BaseLoop)
    }
    for dataset in data.values():
        for leaf in leaves(dataset):
            yield from dataset_problems(leaf)
            yield from _unequal_numbers(leaf)
    classes = {split: classes_of(dataset) for split, dataset in data.items()}
    yield from head_problems(unwrapped(runner.model), classes)
    yield from order_problems(classes)


def _unequal_numbers(dataset: BaseDataset) -> Iterator[str]:
    """A message if the data set's CheckSample expects another number of classes."""
    count = len(classes_of(dataset))
    for step in dataset.pipeline.transforms:
        if type(step).__name__ != 'CheckSample':  # whose module needs mmcv
            continue
        if count and step.num_classes not in (None, count):
            yield (
                f'CheckSample.num_classes = {step.num_classes}, but {type(dataset).__name__} has '
                f'{count} classes.'
            )


def _best_problems(runner: Runner, scores: dict[str, Any]) -> Iterator[str]:
    """A message for each name in ``save_best`` that is not among the scores.

    Metrics report none where an untrained detector finds nothing.
    """
    for hook in (hook for hook in runner.hooks if isinstance(hook, CheckpointHook)):
        for name in (hook.save_best or ()) if scores else ():
            if name not in ('auto', *scores):
                yield (
                    f'default_hooks.checkpoint.save_best = {name!r} is not a score of '
                    f'val_evaluator; it reports, for example, {", ".join([*scores][:5])}.'
                )


class _quiet(redirect_stdout):  # noqa: N801
    """Scores of two batches mean nothing: neither the logger nor pycocotools prints them."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(StringIO())
        self.logger, self.level = logger, logger.level

    def __enter__(self) -> Any:
        self.logger.setLevel(logging.CRITICAL)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.logger.setLevel(self.level)


class _Strides:
    """Record the sizes of images and feature maps where a detector has anchors and regions.

    With wrong strides these would be in wrong places, without an error.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.handles = model, []
        self.height = 0  # of the images
        self.heads: dict[str, tuple[list[int], list[int]]] = {}  # strides, heights of maps

    def __enter__(self) -> '_Strides':
        if isinstance(backbone := getattr(self.model, 'backbone', None), nn.Module):
            self.handles.append(backbone.register_forward_pre_hook(self._note_image))
        for name, part in self.model.named_modules():
            strides = getattr(part, 'featmap_strides', None)  # of RoI extractors
            if hasattr(part, 'prior_generator'):
                strides = [stride[1] for stride in part.prior_generator.strides]
            if strides:
                self._watch(name, part, strides)
        return self

    def _watch(self, name: str, part: nn.Module, strides: list[int]) -> None:
        def note(_: nn.Module, inputs: tuple) -> None:
            self.heads[name] = strides, [x.shape[2] for x in inputs[0]]

        self.handles.append(part.register_forward_pre_hook(note))

    def _note_image(self, _: nn.Module, inputs: tuple[Tensor]) -> None:
        self.height = inputs[0].shape[2]

    def __exit__(self, *error: Any) -> None:
        for handle in self.handles:
            handle.remove()

    def problems(self) -> Iterator[str]:
        for name, (strides, sides) in self.heads.items():
            # small maps are rounded up; a wrong stride is wrong by a factor of 2
            pairs = zip(strides, sides, strict=False)
            apart = [abs(s * y - self.height) / max(6 * s, self.height) for s, y in pairs]
            if self.height and max(apart, default=0) > 0.25:
                listed = ', '.join(f'{self.height / side:.0f}' for side in sides)
                yield (
                    f'model.{name} has the strides {[*strides]}, but its feature maps {listed}. '
                    'Set these strides, or make maps of other strides by '
                    'mmbixt.FeaturePyramidAdapter (out_strides), as the first neck.'
                )
