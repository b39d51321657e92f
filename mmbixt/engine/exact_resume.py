"""A run that is resumed goes on as if it had not stopped.

mmengine restores weights, optimizer and schedules, but no generator of random numbers. It reads all
earlier batches again, in the order of another seed unless the config has one. Here nothing has to
be restored, because all that is random follows from numbers that a resumed run knows: the seed,
the process, the iteration, and the position of an image in its batch.
"""

import logging
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from mmengine.dist import broadcast_object_list, get_rank, get_world_size
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.runner import BaseLoop, Runner
from mmengine.runner.loops import IterBasedTrainLoop, _InfiniteDataloaderIterator
from torch.utils.data import BatchSampler, Dataset, Sampler

from mmbixt.ops import dispatch
from mmbixt.registry import DATA_SAMPLERS, HOOKS

_META, _CONVOLVES = 'mmbixt_exact_resume', 'mmbixt_convolves'  # in a checkpoint's meta
_OF_A_STEP, _OF_AN_IMAGE = 0, 1  # so that the two draw different numbers


def _set_generators(*numbers: int) -> None:
    """Python's, NumPy's and torch's, on all devices."""
    seeds = np.random.SeedSequence(numbers).generate_state(3)
    random.seed(int(seeds[0]))
    np.random.seed(seeds[1])
    torch.manual_seed(int(seeds[2]))


class _NumberedBatch(list):
    """Indices of the images of a batch, which is the ``number``-th of the run."""

    number: int


@DATA_SAMPLERS.register_module()
class NumberedBatches:
    """Batches that know how many came before them; those of earlier runs are passed over.

    Args:
        sampler: of indices.
        batch_size: of the batches.
        batches: config of another batch sampler than torch's.
    """

    def __init__(self, sampler: Sampler, batch_size: int, batches: dict | None, **options) -> None:
        sizes = dict(sampler=sampler, batch_size=batch_size)
        if batches is None:
            self.batches = BatchSampler(**sizes, drop_last=options.get('drop_last', False))
        else:
            self.batches = DATA_SAMPLERS.build(batches, default_args=sizes)
        self.sampler, self.batch_size = sampler, batch_size
        self.drop_last = options.get('drop_last', False)
        self.number = 0
        self._begun: Iterator | None = None

    def pass_over(self, count: int) -> int:
        """Go on behind ``count`` batches; returns how often the data ended within them."""
        epoch, batches = 0, iter(self.batches)
        for _ in range(count):
            if next(batches, None) is None:
                epoch += 1
                if hasattr(self.sampler, 'set_epoch'):
                    self.sampler.set_epoch(epoch)
                batches = iter(self.batches)
                next(batches)
        self._begun, self.number = batches, count
        return epoch

    def __iter__(self) -> Iterator[_NumberedBatch]:
        batches, self._begun = self._begun or iter(self.batches), None
        for indices in batches:
            batch = _NumberedBatch(indices)
            batch.number = self.number
            self.number += 1
            yield batch

    def __len__(self) -> int:
        return len(self.batches)


class _SeededItems:
    """What torch's loader calls, in whichever process, for the images of a batch."""

    def __init__(self, dataset: Dataset, seed: int) -> None:
        self.dataset, self.numbers = dataset, (seed, _OF_AN_IMAGE, get_rank())

    def __call__(self, batch: _NumberedBatch) -> list[Any]:
        return [self.item(index, batch.number, i) for i, index in enumerate(batch)]

    def item(self, index: int, number: int, position: int) -> Any:
        _set_generators(*self.numbers, number, position)
        return self.dataset[index]


@HOOKS.register_module()
class ExactResumeHook(Hook):
    """Make training repeatable from any checkpoint, bit by bit where the kernels are.

    The data of a run come in the order of its seed, and its random numbers (stochastic depth,
    dropout, augmentation) depend on seed, process, iteration and image alone. So N iterations, and
    N/2 and N/2 more with ``resume``, end with the same weights. Earlier batches are not read again.
    With gradients that are accumulated over several iterations, checkpoints have to fall on the
    last one of them.

    The run that is resumed must have had the hook, too, and the same processes and batches;
    otherwise it says what cannot be the same. All processes multiply matrices by the library that
    the first one has found to be faster, or that the run to be resumed had: their bits differ.

    Example:
        >>> default_hooks = dict(exact_resume=dict(type='mmbixt.ExactResumeHook'))
    """

    priority = 'VERY_HIGH'

    def __init__(self) -> None:
        self.goes_on = True  # with the same batches as the run that is resumed
        self.convolves: bool | None = None  # whether the run did that is resumed
        self.is_validating = False

    def before_val(self, runner: Runner) -> None:
        self.is_validating = True

    def after_val(self, runner: Runner) -> None:
        self.is_validating = False

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        if self.is_validating:  # of the best model; FlexibleRunner would count one iteration more
            checkpoint['meta'].update(epoch=runner.epoch, iter=runner.iter)
        checkpoint['meta'][_META] = self._shares(runner)
        checkpoint['meta'][_CONVOLVES] = dispatch.ONEDNN_IS_FASTER

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        if not runner._resume:
            return
        self.convolves = checkpoint.get('meta', {}).get(_CONVOLVES)
        before, now = checkpoint.get('meta', {}).get(_META), self._shares(runner)
        self.goes_on = before is not None and all(now[key] == before[key] for key in before)
        if self.goes_on:
            return
        if before is None:
            text = 'was written without ExactResumeHook: images come in another order than they did'
        else:
            was, are = (
                f'{x["processes"]} processes x {x["batch_size"]} images' for x in (before, now)
            )
            if 'images' in before:
                was, are = (f'{x} of {y["images"]}' for x, y in ((was, before), (are, now)))
            text = f'is of a run with {was} (processes x batch), and this one has {are}: it gets '
            text += 'other images and random numbers than that would have'
        text = f'The checkpoint {text}. Weights, optimizer and schedules are restored.'
        print_log(text, 'current', logging.WARNING)

    @staticmethod
    def _shares(runner: Runner) -> dict[str, int]:
        """What the images of a step, and the random numbers, depend on beside the seed."""
        loader = runner.train_dataloader
        return dict(
            processes=get_world_size(),
            batch_size=loader.batch_sampler.batch_size,
            images=len(loader.dataset),
        )

    def before_train(self, runner: Runner) -> None:
        loop, config = runner.train_loop, runner._train_dataloader
        if not isinstance(config, dict):
            raise TypeError(
                'ExactResumeHook builds the loader of the training data anew, and needs '
                f'train_dataloader as a dict, not a {type(config).__name__}.'
            )
        choice = [dispatch.ONEDNN_IS_FASTER if self.convolves is None else self.convolves]
        broadcast_object_list(choice)
        dispatch.ONEDNN_IS_FASTER = choice[0]
        dataset, seed = loop.dataloader.dataset, runner.seed
        loop.dataloader = loop.dataloader_iterator = None  # ends its workers
        batches = dict(type='mmbixt.NumberedBatches', batches=config.get('batch_sampler'))
        # a function, because the config is copied, and the data set is not to be
        config = {**config, 'dataset': dict(type=lambda: dataset), 'batch_sampler': batches}
        config.pop('num_batch_per_epoch', None)  # which has cut the data set already
        if 'drop_last' in config:
            batches['drop_last'] = config.pop('drop_last')
        is_different = runner._randomness_cfg.get('diff_rank_seed', False)
        dataset.__getitems__ = _SeededItems(dataset, seed)
        loop.dataloader = runner.build_dataloader(config, seed=seed, diff_rank_seed=is_different)
        self._pass_over(loop, runner.iter)

    def _pass_over(self, loop: BaseLoop, count: int) -> None:
        """Leave out the batches of ``count`` iterations."""
        sampler = loop.dataloader.batch_sampler
        sampler.number = count
        if isinstance(loop, IterBasedTrainLoop):
            epoch = sampler.pass_over(count)
            loop.dataloader_iterator = _PassedOver(loop.dataloader, epoch, count)
            return
        if self.goes_on:  # from a checkpoint in the middle of an epoch, too
            loop._epoch, rest = divmod(count, len(sampler))
            if hasattr(sampler.sampler, 'set_epoch'):
                sampler.sampler.set_epoch(loop._epoch)
            sampler.pass_over(rest)
            sampler.number = count

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Sequence) -> None:
        _set_generators(runner.seed, _OF_A_STEP, get_rank(), runner.iter)


class _PassedOver(_InfiniteDataloaderIterator):
    """mmengine's iterator, which has nothing to give for the batches that were passed over.

    mmengine asks for each of them before it goes on. The OneDL fork calls ``skip_iter`` instead, or
    with ``fast_forward_on_resume`` nothing.
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
