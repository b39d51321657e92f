"""A resumed run continues with the images and random numbers of a run without interruption.

mmengine does not restore random generators, and reads all earlier batches again. Here the
generators are seeded in each iteration and for each image.
"""

import logging
import random
from collections.abc import Iterator
from itertools import chain, count, repeat
from typing import Any

import numpy as np
import torch
from mmengine.dist import get_rank, get_world_size
from mmengine.hooks import Hook, ParamSchedulerHook
from mmengine.logging import print_log
from mmengine.runner import IterBasedTrainLoop, Runner
from torch.utils.data import BatchSampler, Dataset, Sampler

from mmbixt.registry import DATA_SAMPLERS, HOOKS

_KEY = 'mmbixt_exact_resume'  # in a checkpoint's meta
_STEP, _IMAGE = 0, 1  # first number of the seeds, so that steps and images draw different numbers


def _set_generators(*numbers: int) -> None:
    """Seed the generators of Python, NumPy and torch (all devices) with a tuple of numbers."""
    seeds = np.random.SeedSequence(numbers).generate_state(3)
    random.seed(int(seeds[0]))
    np.random.seed(seeds[1])
    torch.manual_seed(int(seeds[2]))


class NumberedBatches:
    """A batch sampler: (number in the run, image indices) of each batch from ``first_read`` on.

    ``batches`` is the config of a batch sampler to use instead of torch's, or None.
    """

    def __init__(
        self, sampler: Sampler, batch_size: int, batches: dict | None, drop_last: bool
    ) -> None:
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last
        if batches is None:
            self.batches = BatchSampler(sampler, batch_size, drop_last)
        else:
            sizes = dict(sampler=sampler, batch_size=batch_size)
            self.batches = DATA_SAMPLERS.build(batches, default_args=sizes)
        self.next_batch = 0  # its number in the run
        self.first_read = 0  # batches before this one are not read
        self.is_endless = False  # one epoch after the other

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        for epoch in count() if self.is_endless else [0]:
            if self.is_endless and hasattr(self.sampler, 'set_epoch'):
                self.sampler.set_epoch(epoch)
            for indices in self.batches:
                self.next_batch += 1
                if self.next_batch > self.first_read:
                    yield self.next_batch - 1, indices
            if self.next_batch == 0:
                return

    def __len__(self) -> int:
        return len(self.batches)


class _SeededItems:
    """``dataset.__getitems__``: seeds the generators anew for each image of a batch."""

    def __init__(self, dataset: Dataset, seed: int) -> None:
        self.dataset, self.numbers = dataset, (seed, _IMAGE, get_rank())

    def __call__(self, batch: tuple[int, list[int]]) -> list[Any]:
        number, indices = batch
        samples = []
        for position, index in enumerate(indices):
            _set_generators(*self.numbers, number, position)
            samples.append(self.dataset[index])
        return samples


def _batching(runner: Runner) -> dict[str, int]:
    """Settings that, together with the seed, determine the images of a step."""
    return dict(
        processes=get_world_size(),
        batch_size=runner.cfg.train_dataloader.get('batch_size'),
        images=len(runner.train_dataloader.dataset),
    )


@HOOKS.register_module()
class ExactResumeHook(Hook):
    """Make resuming exact: bit for bit where the kernels are deterministic.

    The seed determines the order of the images. Random numbers (stochastic depth, dropout,
    augmentation) depend on the seed, the rank, the iteration and the position of the image in its
    batch alone. Earlier batches are not read again. Where gradients are accumulated over several
    iterations, checkpoints must be written after the last one of them.

    The run to be resumed must have used this hook, the same number of processes and the same batch
    size; otherwise a warning says what differs. The runner must be built from a config.

    Example:
        >>> default_hooks = dict(exact_resume=dict(type='mmbixt.ExactResumeHook'))
    """

    priority = 'VERY_HIGH'

    def __init__(self) -> None:
        self.has_same_batches = True  # whether the run that is resumed had the same batches
        # whether the checkpoint was saved at the end of an epoch, before the step of its schedules
        self.ends_epoch = False
        self.iterations = 0  # how many are complete

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        # FlexibleRunner counts one too many in a checkpoint that is written after a validation
        checkpoint['meta'].update({'iter': self.iterations, _KEY: _batching(runner)})

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        if not runner.cfg.get('resume'):
            return
        meta, now = checkpoint['meta'], _batching(runner)
        before = meta.get(_KEY, 'no ExactResumeHook')
        self.has_same_batches = before == now
        if not self.has_same_batches:
            text = f'The checkpoint is of a run with {before}, but this run has {now}'
            text += ': the order of the images and the random numbers differ.'
            print_log(text, 'current', logging.WARNING)
        elif not isinstance(runner.train_loop, IterBasedTrainLoop):
            # mmengine's number is one too small if the last batch of an epoch was saved
            complete = meta['iter'] // len(runner.train_dataloader)
            self.ends_epoch = complete > meta['epoch']
            meta['epoch'] = complete

    def before_train(self, runner: Runner) -> None:
        """Build the data loader again, with the seed of the run that is resumed."""
        if self.ends_epoch:
            ParamSchedulerHook().after_train_epoch(runner)
        loop, done, config = runner.train_loop, runner.iter, dict(runner.cfg.train_dataloader)
        dataset = loop.dataloader.dataset
        dataset.__getitems__ = _SeededItems(dataset, runner.seed)
        # a function, because mmengine copies the config, and the data set may be too large to copy
        config['dataset'] = dict(type=lambda: dataset)
        config.pop('num_batch_per_epoch', None)  # the data set is cut already
        batches, drop_last = config.get('batch_sampler'), config.pop('drop_last', False)
        kind = dict(type=NumberedBatches, batches=batches, drop_last=drop_last)
        config['batch_sampler'] = kind
        diff_rank_seed = runner.cfg.get('randomness', {}).get('diff_rank_seed', False)
        loop.dataloader = runner.build_dataloader(config, runner.seed, diff_rank_seed)
        batches = loop.dataloader.batch_sampler
        self.iterations = batches.first_read = done
        if isinstance(loop, IterBasedTrainLoop):
            batches.is_endless = True
            # OneDL's mmengine, which reads no earlier batches with this setting
            if hasattr(loop, 'fast_forward_on_resume'):
                loop.fast_forward_on_resume, done = True, 0
            # mmengine calls next for each of the earlier batches
            loop.dataloader_iterator = chain(repeat(None, done), loop.dataloader)
        else:
            batches.next_batch = done - done % len(batches) if self.has_same_batches else done

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        _set_generators(runner.seed, _STEP, get_rank(), runner.iter)

    def after_train_iter(self, runner: Runner, batch_idx: int, *_: Any, **__: Any) -> None:
        self.iterations = runner.iter + 1
