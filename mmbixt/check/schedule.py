"""Whether a training is long enough for its warm-up and for the logger."""

from collections.abc import Iterator, Mapping
from typing import Any


def loop_problems(cfg: Mapping[str, Any]) -> Iterator[str]:
    """A message if training is given a length in another unit than its loop counts in."""
    loop = cfg.get('train_cfg') or {}
    kind = str(loop.get('type'))
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
    length = (cfg.get('train_cfg') or {}).get('max_iters')
    logger = (cfg.get('default_hooks') or {}).get('logger', {})
    interval = 0 if logger is None else logger.get('interval', 10)  # 0: no logger at all
    if length and min(epoch or interval, interval) > length:
        yield (
            f'default_hooks.logger.interval = {interval}, but training ends after {length:,} '
            'iterations: no loss is logged, and a report shows none. To log it: --cfg-options '
            f'default_hooks.logger.interval={max(1, length // 10)}'
        )


def schedule_notes(cfg: Mapping[str, Any], epoch: int | None) -> Iterator[str]:
    """A line for each warm-up that is longer than the schedule, and for a logger that logs no loss.

    Args:
        cfg: the config.
        epoch: iterations of an epoch, None if that is not known.
    """
    yield from _loss_note(cfg, epoch)
    loop, schedulers = cfg.get('train_cfg') or {}, cfg.get('param_scheduler') or []
    lengths = {False: loop.get('max_iters'), True: loop.get('max_epochs')}
    if lengths[True] and epoch:
        lengths[False] = lengths[True] * epoch
    for i, part in enumerate(schedulers if isinstance(schedulers, list | tuple) else [schedulers]):
        by_epoch = part.get('by_epoch', True)
        end, length = part.get('end'), lengths[by_epoch]
        is_warm_up = str(part.get('type')) in ('LinearLR', 'ConstantLR', 'QuadraticWarmupLR')
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
