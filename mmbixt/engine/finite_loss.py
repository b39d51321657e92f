"""Stop training when the loss is not finite."""

import math
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmbixt.registry import HOOKS


@HOOKS.register_module()
class FiniteLossHook(Hook):
    """Stop a process when its loss is NaN or infinite; torchrun and srun then end the others.

    The error names the iteration and the images of the batch. No checkpoint is written after this
    step, nor one with weights that are not finite.
    """

    priority = 'HIGH'  # after mmengine has read the loss, before hooks that write checkpoints

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: dict | None = None
    ) -> None:
        # the number is there: reading the tensor would wait for the GPU once more
        loss = runner.message_hub.get_scalar('train/loss').current()
        if math.isfinite(loss):
            return
        samples = data_batch.get('data_samples', ()) if isinstance(data_batch, dict) else ()
        files = [getattr(x, 'img_path', '(an image without a file name)') for x in samples]
        first = f'The loss is {loss} in iteration {runner.iter + 1}, for the images'
        raise FloatingPointError('\n  '.join([first, *files]))

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        if not all(torch.isfinite(weight).all() for weight in runner.model.parameters()):
            raise FloatingPointError('Weights are not finite, so no checkpoint is written.')
