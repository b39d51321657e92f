"""A loss that is not finite stops a run before the weights are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import all_reduce
from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
from torch import Tensor

from mmbixt.checkpoints.loader import load
from mmbixt.registry import HOOKS


@HOOKS.register_module()
class FiniteLossHook(Hook):
    """Look at each loss before its gradients are computed.

    If the loss of any process is NaN or infinite, all of them stop, with the iteration, the images
    of the batch and the latest checkpoint whose weights are finite; or all pass over the batch.
    (Infinite *gradients* are usual in float16; the loss scaler passes over those by itself.)

    Args:
        on_bad: 'raise' an error, or 'skip' the batch: nothing of it is added to the gradients.
        max_skipped: with 'skip', how many batches of a run are too many.
    """

    priority = 'HIGHEST'  # before hooks that log the loss

    def __init__(self, on_bad: str = 'raise', max_skipped: int = 10) -> None:
        if on_bad not in ('raise', 'skip'):
            raise ValueError(f"FiniteLossHook: on_bad={on_bad!r} is not one of 'raise', 'skip'.")
        self.on_bad, self.max_skipped = on_bad, max_skipped
        self.skipped = 0
        self.is_skipped, self.batch = False, None  # of this iteration

    def before_train(self, runner: Runner) -> None:
        wrapper = runner.optim_wrapper
        if not isinstance(wrapper, OptimWrapper):
            raise TypeError(f'FiniteLossHook needs one optimizer, not {type(wrapper).__name__}.')
        update = wrapper.update_params

        def checked(loss: Tensor, *args: Any, **options: Any) -> None:
            bad = (~loss.detach().isfinite()).any().float()
            all_reduce(bad, 'max')
            if bad.item():
                self._report(runner, loss)
                self.is_skipped = True
                _pass_over(wrapper)
            else:
                update(loss, *args, **options)

        wrapper.update_params = checked

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        self.is_skipped, self.batch = False, data_batch

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict | None = None
    ) -> None:
        self.batch = None
        if self.is_skipped and outputs:
            outputs.clear()  # else the averages in the log would be NaN, too

    def _report(self, runner: Runner, loss: Tensor) -> None:
        """Raise an error, or log what is passed over."""
        where = f'iteration {runner.iter + 1}'
        if loss.isfinite().all():
            text = f'The loss of another process is not finite in {where}'
        else:
            files = list(_files(self.batch)) or ['(the batch does not name its files)']
            text = f'The loss is {loss.item()} in {where}, for the images'
            text = '\n  '.join([text, *files])
        self.skipped += 1
        if self.on_bad == 'skip' and self.skipped <= self.max_skipped:
            count = f'Batch passed over ({self.skipped} of at most {self.max_skipped}).'
            runner.logger.warning(f'{text}\n{count}')
            return
        if self.on_bad == 'skip':
            text += f'\n{self.max_skipped} batches were passed over before, which is max_skipped.'
        raise FloatingPointError(f'{text}\n{_state(runner)}')


def _pass_over(wrapper: OptimWrapper) -> None:
    """End an iteration without gradients; other iterations may have accumulated some."""
    wrapper._inner_count += 1
    if wrapper.should_update():
        parameters = (p for group in wrapper.param_groups for p in group['params'])
        if any(p.grad is not None for p in parameters):
            wrapper.step()
        wrapper.zero_grad()


def _files(batch: Any) -> Iterator[str]:
    """The images of a batch of mmseg, mmdet or mmpretrain."""
    samples = batch.get('data_samples', ()) if isinstance(batch, dict) else ()
    for sample in samples:
        yield getattr(sample, 'img_path', '?')


def _state(runner: Runner) -> str:
    """Where a run can go on from."""
    if _is_finite(dict(runner.model.named_parameters())):
        text = 'All weights are finite: the images, or a learning rate that is too large, did it.'
    else:
        text = 'Weights are not finite: a gradient before was not.'
    saved = [*Path(runner.work_dir).glob('iter_*.pth'), *Path(runner.work_dir).glob('epoch_*.pth')]
    for path in sorted(saved, key=lambda path: path.stat().st_mtime, reverse=True):
        if _is_finite(load(str(path))['state_dict']):
            return f'{text} The last good checkpoint is {path}; --resume {path} goes on from it.'
    return f'{text} There is no checkpoint yet whose weights are finite.'


def _is_finite(weights: dict) -> bool:
    tensors = (x for x in weights.values() if isinstance(x, Tensor) and x.is_floating_point())
    return all(torch.isfinite(x).all() for x in tensors)
