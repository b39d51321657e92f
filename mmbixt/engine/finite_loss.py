"""Stop training when the loss is not finite."""

from typing import Any

import torch
from mmengine.dist import all_reduce
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmbixt.registry import HOOKS


@HOOKS.register_module()
class FiniteLossHook(Hook):
    """Stop all processes when the loss of one of them is NaN or infinite.

    The error names the iteration and the images of the batch. The optimizer has made this step,
    but no checkpoint is written after it. Neither is one with weights that are not finite, which a
    finite loss with infinite gradients may cause: ``--resume`` starts from finite weights.
    """

    priority = 'HIGHEST'  # before hooks that log the loss or write checkpoints

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict | None = None
    ) -> None:
        loss = outputs['loss']
        is_bad = (~loss.isfinite()).any().float()
        all_reduce(is_bad, 'max')
        if not is_bad.item():
            return
        where = f'in iteration {runner.iter + 1}'
        if loss.isfinite().all():
            raise FloatingPointError(f'The loss of another process is not finite {where}.')
        samples = data_batch.get('data_samples', ()) if isinstance(data_batch, dict) else ()
        files = [getattr(x, 'img_path', '(an image without a file name)') for x in samples]
        raise FloatingPointError(
            '\n  '.join([f'The loss is {loss.item()} {where}, for the images', *files])
        )

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        if not all(torch.isfinite(weight).all() for weight in runner.model.parameters()):
            raise FloatingPointError('Weights are not finite, so no checkpoint is written.')
