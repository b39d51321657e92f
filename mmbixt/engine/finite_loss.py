"""A loss that is not finite stops a run before the weights are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import all_reduce, get_world_size
from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper, OptimWrapperDict
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
    Weights that are not finite stop a run in any case, and no checkpoint is written of them.

    Args:
        on_bad: 'raise' an error, or 'skip' the batch: nothing of it is added to the gradients or
            running statistics, and the log repeats the losses of the batch before (0 at first). If
            it is the last one of a step of several batches (``accumulative_counts``), one process
            makes the step of the others; several processes leave it out, because they have not
            averaged their gradients yet.
        max_skipped: with 'skip', how many batches of a run are too many.
    """

    priority = 'HIGHEST'  # before hooks that log the loss

    def __init__(self, on_bad: str = 'raise', max_skipped: int = 10) -> None:
        if on_bad not in ('raise', 'skip'):
            raise ValueError(f"FiniteLossHook: on_bad={on_bad!r} is not one of 'raise', 'skip'.")
        self.on_bad, self.max_skipped = on_bad, max_skipped
        self.skipped = 0
        self.is_skipped, self.batch = False, None  # of this iteration
        self.buffers, self.outputs = {}, {}  # from before it

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
                _pass_over(wrapper)
            else:
                update(loss, *args, **options)

        wrapper.update_params = checked

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        self.is_skipped, self.batch = False, data_batch
        if self.on_bad == 'skip':  # the forward pass changes running means, also by NaN
            self.buffers = {name: x.clone() for name, x in runner.model.named_buffers()}

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict | None = None
    ) -> None:
        self.batch = None
        if self.on_bad == 'raise' or not outputs:
            return
        if self.is_skipped:  # other hooks expect these keys, and average the values
            outputs.update({key: self.outputs.get(key, torch.zeros(())) for key in outputs})
        self.outputs = {
            key: x.detach() if isinstance(x, Tensor) else x for key, x in outputs.items()
        }

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        if not _is_finite(dict(runner.model.named_parameters())):
            raise FloatingPointError(f'No checkpoint is written now. {_state(runner)}')

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
        is_broken = torch.tensor(float(not _is_finite(dict(runner.model.named_parameters()))))
        is_broken = is_broken.to(loss.device)
        all_reduce(is_broken, 'max')
        goes_on = self.on_bad == 'skip' and not is_broken.item()
        if goes_on and self.skipped <= self.max_skipped:
            count = f'Batch passed over ({self.skipped} of at most {self.max_skipped}).'
            runner.logger.warning(f'{text}\n{count}')
            return
        if goes_on:
            text += f'\n{self.max_skipped} batches were passed over before, which is max_skipped.'
        raise FloatingPointError(f'{text}\n{_state(runner)}')


def _pass_over(wrapper: OptimWrapper) -> None:
    """End an iteration without gradients; other iterations may have accumulated some."""
    wrapper._inner_count += 1
    if wrapper.should_update():
        parameters = (p for group in wrapper.param_groups for p in group['params'])
        if get_world_size() == 1 and any(p.grad is not None for p in parameters):
            wrapper.step()
        wrapper.zero_grad()


def _files(batch: Any) -> Iterator[str]:
    """The images of a batch of mmseg, mmdet or mmpretrain."""
    samples = batch.get('data_samples', ()) if isinstance(batch, dict) else ()
    for sample in samples:
        yield getattr(sample, 'img_path', '?')


def _state(runner: Runner) -> str:
    """Where a run can go on from."""
    text = 'All weights are finite: the images, or a learning rate that is too large, did it.'
    if not _is_finite(dict(runner.model.named_parameters())):
        text = 'Weights are not finite: a gradient before was not.'
    elif not _is_finite(dict(runner.model.named_buffers()), lowest=-torch.inf):
        text += ' Buffers (as running means) are not finite any more.'
    saved = [*Path(runner.work_dir).glob('iter_*.pth'), *Path(runner.work_dir).glob('epoch_*.pth')]
    for path in sorted(saved, key=lambda path: path.stat().st_mtime, reverse=True):
        try:
            checkpoint = load(str(path), 'cpu')
        except Exception as error:  # it must not hide what is wrong with the loss
            runner.logger.warning(f'{path} was left out: {error}')
            continue
        if 'state_dict' in checkpoint and _is_finite(checkpoint['state_dict'], lowest=-torch.inf):
            return f'{text} The last good checkpoint is {path}; --resume {path} goes on from it.'
    return f'{text} There is no checkpoint yet whose weights are finite.'


def _is_finite(weights: dict, lowest: float | None = None) -> bool:
    """Neither NaN nor infinite; but masks among the buffers may have a lowest value of -inf."""
    tensors = (x for x in weights.values() if isinstance(x, Tensor) and x.is_floating_point())
    return all((x.isfinite() | (x == lowest) if lowest else x.isfinite()).all() for x in tensors)
