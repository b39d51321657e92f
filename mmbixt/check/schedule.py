"""Whether the lengths of a training, its warm-up and its intervals fit each other."""

from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any

from mmbixt.config import type_name, within

POSITIVE = ('max_iters', 'max_epochs', 'val_interval', 'accumulative_counts', 'batch_size')
NUMBERS = (*POSITIVE, 'interval', 'lr', 'begin', 'end', 'factor', 'start_factor', 'end_factor')
NUMBERS += ('eta_min', 'T_max')
TO_MINIMUM = ('PolyLR', 'CosineAnnealingLR')  # they have eta_min
DECAYS = (*TO_MINIMUM, 'LinearLR')
WARM_UPS = ('LinearLR', 'ConstantLR', 'QuadraticWarmupLR')


def _schedulers(cfg: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    parts = cfg.get('param_scheduler') or []
    parts = parts if isinstance(parts, list | tuple) else [parts]
    found = {f'param_scheduler.{i}': part for i, part in enumerate(parts)}
    return {path: part for path, part in found.items() if isinstance(part, Mapping)}


def loop_problems(cfg: Mapping[str, Any]) -> Iterator[str]:
    """A message for each length that is no number, or in another unit than the loop counts in."""
    loop = within(cfg, 'train_cfg')
    kind = type_name(loop)
    if loop and 'type' not in loop and 'by_epoch' not in loop:
        yield "train_cfg has no type: set 'EpochBasedTrainLoop' or 'IterBasedTrainLoop'."
    places = ('train_cfg', 'train_dataloader', 'optim_wrapper', 'optim_wrapper.optimizer')
    places += ('default_hooks.checkpoint', 'default_hooks.logger')
    parts = {path: within(cfg, *path.split('.')) for path in places}
    for path, part in (parts | _schedulers(cfg)).items():
        for key in NUMBERS:
            value = part.get(key)
            if value is not None and not isinstance(value, int | float):
                yield f'{path}.{key} = {value!r} is no number.'
            elif value is not None and value <= 0 and key in POSITIVE:
                yield f'{path}.{key} = {value} must be larger than 0.'
        steps = () if part.get('milestones') is None else part['milestones']
        are_many = isinstance(steps, Iterable) and not isinstance(steps, str)
        if not are_many or not all(isinstance(x, int | float) for x in steps):
            yield f'{path}.milestones = {steps!r} is no list of numbers.'
    units = {'Iter': ('max_epochs', 'max_iters'), 'Epoch': ('max_iters', 'max_epochs')}
    for word, (key, right) in units.items():
        if kind == f'{word}BasedTrainLoop' and key in loop:
            yield (
                f'train_cfg.{key} = {loop[key]}, but train_cfg.type = {kind!r}: set '
                f'train_cfg.{right}.'
            )


def _loss_note(cfg: Mapping[str, Any], epoch: int | None) -> Iterator[str]:
    """mmengine's logger logs after each interval, and after an epoch that is not longer."""
    length = within(cfg, 'train_cfg').get('max_iters')
    interval = within(cfg, 'default_hooks', 'logger').get('interval') or 10  # mmengine's default
    has_logger = within(cfg, 'default_hooks').get('logger', {}) is not None
    if length and has_logger and min(epoch or interval, interval) > length:
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
    if iterations > 0 and iterations % count:
        yield (
            f'optim_wrapper.accumulative_counts = {count}, but a checkpoint is written every '
            f'{iterations:,} iterations, without the accumulated gradients. To resume exactly, '
            f'write it after a multiple of {count} iterations (default_hooks.checkpoint).'
        )


def _unit_notes(cfg: Mapping[str, Any]) -> Iterator[str]:
    """What counts in epochs, as by default, does nothing in a training without epochs."""
    if 'max_iters' not in within(cfg, 'train_cfg'):
        return
    checkpoint = within(cfg, 'default_hooks', 'checkpoint')
    for path, part in (_schedulers(cfg) | {'default_hooks.checkpoint': checkpoint}).items():
        if type_name(part) == 'ReduceOnPlateauLR':  # after each validation
            continue
        if part and part.get('by_epoch', True):
            what = 'saves only at the end' if part is checkpoint else 'changes nothing'
            yield (
                f'{path} counts in epochs (by_epoch=True, the default), and train_cfg in '
                f'iterations: it {what}. Set by_epoch=False.'
            )


def _rate_notes(cfg: Mapping[str, Any], epoch: int | None) -> Iterator[str]:
    """Whether warm-up and decay of the learning rate end before the training."""
    loop = within(cfg, 'train_cfg')
    epochs, iterations = loop.get('max_epochs'), loop.get('max_iters')
    if epochs and epoch:
        iterations = epochs * epoch
    parts = _schedulers(cfg)
    for path, part in parts.items():
        by_epoch, begin, end = part.get('by_epoch', True), part.get('begin') or 0, part.get('end')
        length = epochs if by_epoch else iterations
        start = part.get('start_factor', part.get('factor', 1 / 3))
        warms_up = not begin and type_name(part) in WARM_UPS and start < part.get('end_factor', 1)
        if length and begin >= length:
            yield (
                f'{path} begins at {begin:,}, and training ends after {length:,}: it changes '
                'nothing.'
            )
        elif not warms_up:
            yield from _decay_notes(path, part, length)
        elif length and (end is None or end > length):
            what = 'epochs' if by_epoch else 'iterations'
            until = 'has no end' if end is None else f'lasts {end:,} {what}'
            yield (
                f'{path}: the warm-up {until}, and training {length:,}: the learning rate never '
                f'gets to its value. Set {path}.end (and begin of what follows) to a tenth of the '
                'training or less, or train longer.'
            )
    yield from _end_note(parts, epochs, iterations)
    rate = within(cfg, 'optim_wrapper', 'optimizer').get('lr') or 0
    ends = {path: x.get('eta_min') or 0 for path, x in parts.items() if type_name(x) in TO_MINIMUM}
    if ends and min(ends.values()) >= rate > 0:  # of several phases, some may rise
        path, value = min(ends.items(), key=itemgetter(1))
        yield f'{path}.eta_min = {value:g}, and the learning rate is {rate:g}: it does not fall.'


def _end_note(
    parts: Mapping[str, Mapping[str, Any]], epochs: int | None, iterations: int | None
) -> Iterator[str]:
    """Whether the last schedule ends at 0, before the training does."""
    path, part = next(reversed(parts.items()), ('', {}))
    end, length = part.get('end'), epochs if part.get('by_epoch', True) else iterations
    has_minimum = part.get('eta_min') or part.get('eta_min_ratio')
    is_zero = type_name(part) in TO_MINIMUM and not has_minimum
    is_whole = part.get('T_max') in (None, (end or 0) - (part.get('begin') or 0))
    if is_zero and is_whole and end and length and end < length:
        yield (
            f'{path} ends after {end:,}, and training after {length:,}: from there on the learning '
            f'rate is 0. Set {path}.end = {length}.'
        )


def _decay_notes(path: str, part: Mapping[str, Any], length: int | None) -> Iterator[str]:
    """Whether the learning rate falls to its last value before the training ends."""
    kind, begin, end = type_name(part), part.get('begin') or 0, part.get('end')
    first = min(part.get('milestones') or [0])
    if length and first >= length:
        yield (
            f'{path}: the first milestone is {first:,}, and training ends after {length:,}: the '
            'learning rate does not fall.'
        )
    last, key = end, 'end'
    if kind == 'CosineAnnealingLR' and part.get('T_max'):  # a half period, of the length of a phase
        last, key = begin + part['T_max'], 'T_max'
    if kind in DECAYS and last and length and last > length:
        yield (
            f'{path}: {kind} ends after {last:,}, and training after {length:,}: the learning rate '
            f'does not get to its last value. Set {path}.{key} = '
            f'{length - (begin if key == "T_max" else 0)}.'
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
    yield from _rate_notes(cfg, epoch)
