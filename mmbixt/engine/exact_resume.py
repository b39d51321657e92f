"""A resumed run continues with the images and random numbers of a run without interruption.

mmengine restores weights, optimizer and schedules, but not the random generators. It reads all
earlier batches again, in the order of another seed unless the config sets one. Here no generator
state is saved: the generators are seeded in each iteration and for each image from the seed, the
rank, the iteration, and the position of the image in its batch.
"""

import json
import logging
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dist import get_rank, get_world_size
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.runner import BaseLoop, Runner
from mmengine.runner.loops import IterBasedTrainLoop, _InfiniteDataloaderIterator
from torch.utils.data import BatchSampler, Dataset, Sampler

from mmbixt.config import plain, within
from mmbixt.frameworks import is_of_project
from mmbixt.registry import DATA_SAMPLERS, HOOKS

# keys in a checkpoint's meta
_META, _RESTORED = 'mmbixt_exact_resume', 'mmbixt_restored'
_STEP, _IMAGE = 0, 1  # first number of the seeds, so that steps and images draw different numbers


def _set_generators(*numbers: int) -> None:
    """Seed the generators of Python, NumPy and torch (all devices) with a tuple of numbers."""
    seeds = np.random.SeedSequence(numbers).generate_state(3)
    random.seed(int(seeds[0]))
    np.random.seed(seeds[1])
    torch.manual_seed(int(seeds[2]))


class _NumberedBatch(list):
    """Image indices of the ``number``-th batch of a run."""

    number: int


@DATA_SAMPLERS.register_module()
class NumberedBatches:
    """A batch sampler that numbers its batches, and can skip those of earlier runs.

    Args:
        sampler: sampler of image indices.
        batch_size: images of a batch.
        batches: config of a batch sampler to use instead of torch's.
        drop_last: for torch's batch sampler.
    """

    def __init__(
        self, sampler: Sampler, batch_size: int, batches: dict | None, drop_last: bool = False
    ) -> None:
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last
        if batches is None:
            self.batches = BatchSampler(sampler, batch_size, drop_last)
        else:
            sizes = dict(sampler=sampler, batch_size=batch_size)
            self.batches = DATA_SAMPLERS.build(batches, default_args=sizes)
        self.number = 0
        self._rest: Iterator | None = None  # batches after the skipped ones

    def skip(self, count: int) -> int:
        """Skip ``count`` batches; returns the number of whole epochs among them."""
        epoch, batches = 0, iter(self.batches)
        for _ in range(count):
            if next(batches, None) is None:
                epoch += 1
                if hasattr(self.sampler, 'set_epoch'):
                    self.sampler.set_epoch(epoch)
                batches = iter(self.batches)
                next(batches)
        self._rest, self.number = batches, count
        return epoch

    def __iter__(self) -> Iterator[_NumberedBatch]:
        batches, self._rest = self._rest or iter(self.batches), None
        for indices in batches:
            batch = _NumberedBatch(indices)
            batch.number = self.number
            self.number += 1
            yield batch

    def __len__(self) -> int:
        return len(self.batches)


class _SeededItems:
    """``dataset.__getitems__``: seeds the generators anew for each image of a batch.

    For the whole batch if the class of a project reads it in one call.
    """

    def __init__(self, dataset: Dataset, seed: int) -> None:
        self.dataset, self.numbers = dataset, (seed, _IMAGE, get_rank())
        own = getattr(type(dataset), '__getitems__', None)
        self.read_batch = own if own and is_of_project(own) else None

    def __call__(self, batch: _NumberedBatch) -> list[Any]:
        if self.read_batch:
            _set_generators(*self.numbers, batch.number, 0)
            return self.read_batch(self.dataset, batch)
        return [self.item(index, batch.number, i) for i, index in enumerate(batch)]

    def item(self, index: int, number: int, position: int) -> Any:
        _set_generators(*self.numbers, number, position)
        return self.dataset[index]


@HOOKS.register_module()
class ExactResumeHook(Hook):
    """Make resuming exact: bit for bit where the kernels are deterministic.

    The seed determines the order of the images. Random numbers (stochastic depth, dropout,
    augmentation) depend on the seed, rank, iteration and image alone. So a run of n iterations, and
    a run of n/2 iterations that is resumed for n/2 more, end with the same weights. Earlier batches
    are not read again. Where gradients are accumulated over several iterations, checkpoints must
    be written after the last one of them.

    The run to be resumed must have used this hook, the same number of processes and the same batch
    size; otherwise a warning says what differs.

    Example:
        >>> default_hooks = dict(exact_resume=dict(type='mmbixt.ExactResumeHook'))
    """

    priority = 'VERY_HIGH'

    def __init__(self) -> None:
        self.same_batches = True  # as in the run that is resumed
        self.is_validating = False

    def before_val(self, runner: Runner) -> None:
        self.is_validating = True

    def after_val(self, runner: Runner) -> None:
        self.is_validating = False

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        if self.is_validating:  # the best checkpoint; FlexibleRunner writes one iteration too many
            checkpoint['meta'].update(epoch=runner.epoch, iter=runner.iter)
        checkpoint['meta'][_META] = self._batching(runner)
        checkpoint['meta'][_RESTORED] = _restored(runner.cfg)

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        if not runner._resume:
            return
        before, now = checkpoint.get('meta', {}).get(_RESTORED) or {}, _restored(runner.cfg)
        if changed := [name for name in before if before[name] != now[name]]:
            text = (
                f'{", ".join(changed)}: changed since the checkpoint was written. A resumed run '
                'restores their state with the old values (the rate of a schedule that has ended '
                'stays as it is), or stops with an error if it does not fit. To use the new ones, '
                'also to train longer: load_from in place of --resume.'
            )
            print_log(text, 'current', logging.WARNING)
        before, now = checkpoint.get('meta', {}).get(_META), self._batching(runner)
        self.same_batches = before is not None and all(now[key] == before[key] for key in before)
        if self.same_batches:
            return
        if before is None:
            text = 'was written without ExactResumeHook: the order of the images will differ'
        else:
            old, new = (
                ', '.join(f'{key.replace("_", " ")} {x[key]}' for key in before)
                for x in (before, now)
            )
            text = f'is of a run with {old}; this run has {new}: batches and random numbers differ'
        text = f'The checkpoint {text}. Weights, optimizer and schedules are restored.'
        print_log(text, 'current', logging.WARNING)

    @staticmethod
    def _batching(runner: Runner) -> dict[str, int]:
        """Settings that, together with the seed, determine the images of a step."""
        loader = runner.train_dataloader
        return dict(
            processes=get_world_size(),
            batch_size=getattr(loader.batch_sampler, 'batch_size', None),  # a project's has none
            images=len(loader.dataset),
        )

    def before_train(self, runner: Runner) -> None:
        loop, config = runner.train_loop, runner._train_dataloader
        if not isinstance(config, dict):
            raise TypeError(
                'ExactResumeHook builds the data loader for training again, and needs '
                f'train_dataloader as a dict, not a {type(config).__name__}.'
            )
        dataset, seed = loop.dataloader.dataset, runner.seed
        loop.dataloader = loop.dataloader_iterator = None  # ends its workers
        batches = dict(type='mmbixt.NumberedBatches', batches=config.get('batch_sampler'))
        batches['drop_last'] = config.get('drop_last', False)
        # a function, because the config is copied, and a data set may be too large for a copy
        config = {**config, 'dataset': dict(type=lambda: dataset), 'batch_sampler': batches}
        config.pop('num_batch_per_epoch', None)  # the data set is cut already
        config.pop('drop_last', None)
        is_different = runner._randomness_cfg.get('diff_rank_seed', False)
        dataset.__getitems__ = _SeededItems(dataset, seed)
        loop.dataloader = runner.build_dataloader(config, seed=seed, diff_rank_seed=is_different)
        if runner.iter:  # the log begins with another one, which mmengine draws before it resumes
            print_log(f'Seed of the resumed run: {seed}', 'current')
        self._skip(loop, runner.iter)

    def _skip(self, loop: BaseLoop, count: int) -> None:
        """Skip the batches of ``count`` iterations."""
        sampler = loop.dataloader.batch_sampler
        sampler.number = count
        if isinstance(loop, IterBasedTrainLoop):
            if count:
                text = f'The first {count:,} batches are skipped without being read: what mmengine'
                print_log(f'{text} calls "Advance dataloader" takes no time.', 'current')
            epoch = sampler.skip(count)
            loop.dataloader_iterator = _SkippingIterator(loop.dataloader, epoch, count)
            return
        if self.same_batches:  # the checkpoint may be of the middle of an epoch
            loop._epoch, rest = divmod(count, len(sampler))
            if hasattr(sampler.sampler, 'set_epoch'):
                sampler.sampler.set_epoch(loop._epoch)
            sampler.skip(rest)
            sampler.number = count

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Sequence) -> None:
        _set_generators(runner.seed, _STEP, get_rank(), runner.iter)


def _restored(cfg: Config) -> dict[str, str]:
    """The settings of optimizer and schedules, as text."""
    keys = ('optimizer', 'paramwise_cfg')
    settings = {f'optim_wrapper.{key}': within(cfg, 'optim_wrapper').get(key) for key in keys}
    settings |= {key: cfg.get(key) for key in ('param_scheduler', 'auto_scale_lr')}
    return {key: json.dumps(plain(part), sort_keys=True) for key, part in settings.items()}


class _SkippingIterator(_InfiniteDataloaderIterator):
    """mmengine's iterator; returns None for the first ``count`` batches, which were skipped.

    mmengine calls ``next`` for each of them. The OneDL fork calls ``skip_iter`` instead, or with
    ``fast_forward_on_resume`` nothing.
    """

    def __init__(self, dataloader: Any, epoch: int, count: int) -> None:
        super().__init__(dataloader)
        is_asked = not hasattr(_InfiniteDataloaderIterator, 'skip_iter')
        self._epoch, self._count = epoch, count if is_asked else 0

    def skip_iter(self, num_iters: int) -> None:
        """Nothing is left to skip."""

    def __next__(self) -> Any:
        if self._count:
            self._count -= 1
            return None
        return super().__next__()
