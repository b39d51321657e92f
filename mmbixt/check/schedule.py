"""Whether the lengths of a training, its warm-up and its intervals fit each other."""

from collections.abc import Iterator, Mapping
from typing import Any

from mmbixt.config import type_name, within

NUMBERS = ('train_cfg.max_iters', 'train_cfg.max_epochs', 'train_cfg.val_interval')
NUMBERS += ('default_hooks.checkpoint.interval', 'default_hooks.logger.interval')
NUMBERS += ('optim_wrapper.accumulative_counts', 'optim_wrapper.optimizer.lr')
NUMBERS += ('train_dataloader.batch_size',)
MAY_BE_0 = ('interval', 'lr', 'begin', 'end', 'factor', 'start_factor', 'end_factor')


def _schedulers(cfg: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    schedulers = cfg.get('param_scheduler') or []
    schedulers = schedulers if isinstance(schedulers, list | tuple) else [schedulers]
    return [part for part in schedulers if isinstance(part, Mapping)]


def loop_problems(cfg: Mapping[str, Any]) -> Iterator[str]:
    """A message for each length that is no number, or in another unit than the loop counts in."""
    loop = within(cfg, 'train_cfg')
    kind = type_name(loop)
    if loop and 'type' not in loop and 'by_epoch' not in loop:
        yield "train_cfg has no type: set 'EpochBasedTrainLoop' or 'IterBasedTrainLoop'."
    numbers = {path: within(cfg, *path.split('.')[:-1]) for path in NUMBERS}
    for i, part in enumerate(_schedulers(cfg)):
        keys = 'begin', 'end', 'factor', 'start_factor', 'end_factor'
        numbers |= {f'param_scheduler.{i}.{key}': part for key in keys}
    for path, part in numbers.items():
        value = part.get(key := path.rpartition('.')[2])
        if value is not None and not isinstance(value, int | float):
            yield f'{path} = {value!r} is no number.'
        elif value is not None and value <= 0 and key not in MAY_BE_0:
            yield f'{path} = {value} must be larger than 0.'
    for word, key, right in (
        ('Iter', 'max_epochs', 'max_iters'),
        ('Epoch', 'max_iters', 'max_epochs'),
    ):
        if kind.startswith(word) and key in loop:
            yield (
                f'train_cfg.{key} = {loop[key]}, but train_cfg.type = {kind!r}: set '
                f'train_cfg.{right}.'
            )


def _loss_note(cfg: Mapping[str, Any], epoch: int | None) -> Iterator[str]:
    """mmengine's logger logs after each interval, and after an epoch that is not longer."""
    length = within(cfg, 'train_cfg').get('max_iters')
    hooks = within(cfg, 'default_hooks')
    logger = within(hooks, 'logger').get('interval') or 10  # mmengine's default
    interval = 0 if hooks.get('logger', {}) is None else logger  # 0: no logger at all
    if length and min(epoch or interval, interval) > length:
        yield (
            f'default_hooks.logger.interval = {interval}, but training ends after {length:,} '
            'iterations: no loss is logged, and a report shows none. To log it: --cfg-options '
            f'default_hooks.logger.interval={max(1, length // 10)}'
        )


def _accumulation_note(cfg: Mapping[str, Any], epoch: int | None) -> Iterator[str]:
    """Checkpoints have no gradients: one between two updates loses those that it accumulated."""
    count = within(cfg, 'optim_wrapper').get('accumulative_counts') or 1
    checkpoint = within(cfg, 'default_hooks', 'checkpoint')
    interval = checkpoint.get('interval') or -1
    iterations = interval * (epoch or 0) if checkpoint.get('by_epoch', True) else interval
    if iterations > 0 and count > 1 and iterations % count:
        yield (
            f'optim_wrapper.accumulative_counts = {count}, but a checkpoint is written every '
            f'{iterations:,} iterations. Checkpoints have no accumulated gradients, so a run that '
            'is resumed has slightly different weights. For exact resuming, write checkpoints '
            f'after a multiple of {count} iterations (default_hooks.checkpoint).'
        )


def _unit_notes(cfg: Mapping[str, Any]) -> Iterator[str]:
    """What counts in epochs, as by default, does nothing in a training without epochs."""
    if 'max_iters' not in within(cfg, 'train_cfg'):
        return
    places = {f'param_scheduler.{i}': part for i, part in enumerate(_schedulers(cfg))}
    places['default_hooks.checkpoint'] = within(cfg, 'default_hooks', 'checkpoint')
    for path, part in places.items():
        if part and part.get('by_epoch', True):
            what = 'saves only at the end' if 'checkpoint' in path else 'changes nothing'
            yield (
                f'{path} counts in epochs (by_epoch=True, the default), and train_cfg in '
                f'iterations: it {what}. Set by_epoch=False.'
            )


def _validation_note(cfg: Mapping[str, Any]) -> Iterator[str]:
    loop = within(cfg, 'train_cfg')
    first = loop.get('val_begin') or 1  # a longer val_interval validates at the end
    length = loop.get('max_iters') or loop.get('max_epochs')
    # one more than the length is a way to switch it off
    if length and first > length + 1 and cfg.get('val_cfg') and 'Loop' in type_name(loop):
        yield (
            f'train_cfg: val_begin = {first:,}, and training ends after {length:,} iterations or '
            'epochs: there is no validation.'
        )


def _milestone_notes(cfg: Mapping[str, Any]) -> Iterator[str]:
    loop = within(cfg, 'train_cfg')
    for i, part in enumerate(_schedulers(cfg)):
        first = min(part.get('milestones') or [0])
        by_epoch = part.get('by_epoch', True)
        length = loop.get('max_epochs' if by_epoch else 'max_iters')
        if length and first >= length:
            yield (
                f'param_scheduler.{i}: the first milestone is {first:,}, and training ends after '
                f'{length:,}: the learning rate does not fall.'
            )


def schedule_notes(cfg: Mapping[str, Any], epoch: int | None) -> Iterator[str]:
    """Notes on lengths and intervals that cannot be intended.

    Args:
        cfg: the config.
        epoch: iterations of an epoch, None if that is not known.
    """
    yield from _loss_note(cfg, epoch)
    yield from _accumulation_note(cfg, epoch)
    yield from _unit_notes(cfg)
    yield from _validation_note(cfg)
    yield from _milestone_notes(cfg)
    loop = within(cfg, 'train_cfg')
    lengths = {False: loop.get('max_iters'), True: loop.get('max_epochs')}
    if lengths[True] and epoch:
        lengths[False] = lengths[True] * epoch
    for i, part in enumerate(_schedulers(cfg)):
        by_epoch = part.get('by_epoch', True)
        end, length = part.get('end'), lengths[bool(by_epoch)]
        is_warm_up = type_name(part) in ('LinearLR', 'ConstantLR', 'QuadraticWarmupLR')
        if by_epoch and end and epoch and part.get('convert_to_iter_based'):
            by_epoch, end, length = False, end * epoch, lengths[False]
        is_warm_up &= part.get('start_factor', part.get('factor', 1 / 3)) < part.get(
            'end_factor', 1
        )
        if is_warm_up and length and (end is None or end > length):
            what = 'epochs' if by_epoch else 'iterations'
            until = 'has no end' if end is None else f'lasts {end:,} {what}'
            yield (
                f'param_scheduler.{i}: the warm-up {until}, and training {length:,}: the learning '
                f'rate never gets to its value. Set param_scheduler.{i}.end (and begin of what '
                'follows) to a tenth of the training or less, or train longer.'
            )
