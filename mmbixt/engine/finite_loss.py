"""Stop training, or skip the batch, when the loss is not finite."""

from pathlib import Path
from typing import Any

import torch
from mmengine.dist import all_reduce, get_world_size
from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper, OptimWrapperDict
from mmengine.runner import Runner
from torch import Tensor

from mmbixt.checkpoints.loader import load
from mmbixt.checkpoints.written import written_checkpoints
from mmbixt.registry import HOOKS


@HOOKS.register_module()
class FiniteLossHook(Hook):
    """Check each loss before its gradients are computed.

    If the loss of any process is NaN or infinite, all processes stop with an error, which names the
    iteration, the images of the batch and the latest checkpoint with finite weights; or all skip
    the batch. (Infinite *gradients* are usual in float16: the loss scaler skips such steps.)
    Weights that are not finite always stop a run, and are never saved in a checkpoint.

    Args:
        on_bad: 'raise' an error, or 'skip' the batch: it changes no gradients and no running
            statistics, and the log repeats the losses of the previous batch (0 at first). If the
            skipped batch is the last one of a step of several (``accumulative_counts``), a single
            process makes the step with the other batches; several processes skip the step, because
            their gradients are not averaged yet.
        max_skipped: with 'skip', the largest number of batches to skip in a run.
    """

    priority = 'HIGHEST'  # before hooks that log the loss

    def __init__(self, on_bad: str = 'raise', max_skipped: int = 10) -> None:
        if on_bad not in ('raise', 'skip'):
            raise ValueError(f"FiniteLossHook: on_bad={on_bad!r} is not one of 'raise', 'skip'.")
        self.on_bad, self.max_skipped = on_bad, max_skipped
        self.skipped = 0
        self.is_skipped, self.batch = False, None  # of this iteration
        self.buffers, self.outputs = {}, {}  # buffers before it, losses of the previous batch

    def before_train(self, runner: Runner) -> None:
        wrapper = runner.optim_wrapper
        if not isinstance(wrapper, OptimWrapper) or isinstance(wrapper, OptimWrapperDict):
            raise TypeError(f'FiniteLossHook needs one optimizer, not {type(wrapper).__name__}.')
        update = wrapper.update_params

        def checked(loss: Tensor, *args: Any, **options: Any) -> None:
            bad = (~loss.detach().isfinite()).any().float()
            all_reduce(bad, 'max')
            if bad.item():
                self._report(runner, loss)
                self.is_skipped = True
                for name, buffer in runner.model.named_buffers():
                    if name in self.buffers:
                        buffer.copy_(self.buffers[name])
                _skip_batch(wrapper)
            else:
                update(loss, *args, **options)

        wrapper.update_params = checked

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        self.is_skipped, self.batch = False, data_batch
        if self.on_bad == 'skip':  # the forward pass may write NaN into running means
            self.buffers = {name: x.clone() for name, x in runner.model.named_buffers()}

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict | None = None
    ) -> None:
        self.batch = None
        if self.on_bad == 'raise' or not outputs:
            return
        if self.is_skipped:  # other hooks need all keys, and average the values
            outputs.update({key: self.outputs.get(key, torch.zeros(())) for key in outputs})
        self.outputs = {
            key: x.detach() if isinstance(x, Tensor) else x for key, x in outputs.items()
        }

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        if not _has_finite_weights(runner):
            raise FloatingPointError(f'No checkpoint is written. {_advice(runner)}')

    def _report(self, runner: Runner, loss: Tensor) -> None:
        """Raise an error, or log which batch is skipped."""
        where = f'iteration {runner.iter + 1}'
        if loss.isfinite().all():
            text = f'The loss of another process is not finite in {where}'
        else:
            files = _files(self.batch) or ['(the batch does not name its files)']
            text = f'The loss is {loss.item()} in {where}, for the images'
            text = '\n  '.join([text, *files])
        self.skipped += 1
        is_broken = torch.tensor(float(not _has_finite_weights(runner)), device=loss.device)
        all_reduce(is_broken, 'max')
        may_skip = self.on_bad == 'skip' and not is_broken.item()
        if may_skip and self.skipped <= self.max_skipped:
            count = f'Batch skipped ({self.skipped} of at most {self.max_skipped}).'
            runner.logger.warning(f'{text}\n{count}')
            return
        if may_skip:
            text += f'\nmax_skipped={self.max_skipped} batches were skipped before.'
        raise FloatingPointError(f'{text}\n{_advice(runner)}')


def _skip_batch(wrapper: OptimWrapper) -> None:
    """End an iteration without gradients of its own; accumulated gradients stay."""
    wrapper._inner_count += 1
    if wrapper.should_update():
        parameters = (p for group in wrapper.param_groups for p in group['params'])
        if get_world_size() == 1 and any(p.grad is not None for p in parameters):
            wrapper.step()
        wrapper.zero_grad()


def _files(batch: Any) -> list[str]:
    """The images of a batch of mmseg, mmdet or mmpretrain."""
    samples = batch.get('data_samples', ()) if isinstance(batch, dict) else ()
    return [getattr(sample, 'img_path', '?') for sample in samples]


def _advice(runner: Runner) -> str:
    """The probable cause, and the checkpoint to resume from."""
    text = 'All weights are finite: the cause is in the images, or the learning rate is too large.'
    if not _has_finite_weights(runner):
        text = 'Weights are not finite: an earlier gradient was not finite.'
    elif not _is_finite(dict(runner.model.named_buffers()), lowest=-torch.inf):
        text += ' Buffers (such as running means) are not finite.'
    for path, _ in written_checkpoints(Path(runner.work_dir), runner.cfg):
        try:
            checkpoint = load(str(path), 'cpu')
        except Exception as error:  # a damaged checkpoint must not hide the error of the loss
            runner.logger.warning(f'{path} cannot be read: {error}')
            continue
        if 'state_dict' in checkpoint and _is_finite(checkpoint['state_dict'], lowest=-torch.inf):
            return f'{text} To resume from the last good checkpoint: --resume {path}.'
    return f'{text} No checkpoint with finite weights has been written yet.'


def _has_finite_weights(runner: Runner) -> bool:
    return _is_finite(dict(runner.model.named_parameters()))


def _is_finite(weights: dict, lowest: float | None = None) -> bool:
    """No NaN and no infinity, except ``lowest`` (masks among the buffers hold -inf)."""
    tensors = (x for x in weights.values() if isinstance(x, Tensor) and x.is_floating_point())
    return all((x.isfinite() | (x == lowest) if lowest else x.isfinite()).all() for x in tensors)
