"""Training steps in which the GPU does not wait for the CPU to start its kernels one by one."""

from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.model import MMDistributedDataParallel, is_model_wrapper
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner

from mmbixt.engine.batch_loss import BatchLoss
from mmbixt.registry import HOOKS


@HOOKS.register_module()
class CUDAGraphsHook(Hook):
    """Capture the losses of a batch in a CUDA graph, of any segmentor or classifier.

    The graph starts all kernels of backbone, neck, heads and losses at once, forward and backward.
    Before the second iteration ``torch.cuda.make_graphed_callables`` captures ``model.loss`` for
    images and labels of the shapes of the first one. Other shapes, and evaluation, run without it.
    Where nothing can be captured (:func:`obstacle`), the log says why.

    Example:
        >>> custom_hooks = [dict(type='mmbixt.CUDAGraphsHook')]
    """

    priority = 'LOWEST'  # after SanityHook, which validates before training
    losses: BatchLoss | None = None

    def before_train(self, runner: Runner) -> None:
        self.after_train(runner)  # an error may have ended an earlier training
        if problem := obstacle(runner):
            print_log(f'No CUDA graph: {problem}.', 'current')
            return
        model = runner.model
        self.losses = BatchLoss(model.module if is_model_wrapper(model) else model)

    def before_train_iter(self, runner: Runner, *_: Any, **__: Any) -> None:
        """Capture before the second iteration, when nothing refers to the first one."""
        losses, problem = self.losses, ''
        if losses is None:
            return
        if losses.names:
            if losses.state != losses.current_state():
                problem = 'the model was changed after the capture'
        elif not runner.optim_wrapper.should_update():
            # so before the first or the second iteration, where gradients are accumulated
            problem = 'accumulative_counts adds gradients up, and a graph overwrites them'
        elif losses.example:
            problem = losses.capture()
            if not problem:
                print_log(losses.about(), 'current')
        if problem:
            print_log(f'No CUDA graph: {problem}.', 'current')
            self.after_train(runner)

    def after_train(self, runner: Runner) -> None:
        if self.losses is not None:
            self.losses.release()
            self.losses = None


def obstacle(runner: Runner) -> str:
    """Why the losses of the model cannot be captured; empty if they can."""
    if not torch.cuda.is_available():
        return 'torch finds no GPU'
    model = runner.model
    if is_model_wrapper(model):
        if not isinstance(model, MMDistributedDataParallel):
            return f'{type(model).__name__} communicates between the programs'
        model = model.module
    if not (hasattr(model, 'decode_head') or hasattr(model, 'head')):
        return f'{type(model).__name__} is no segmentor or classifier, its images have many sizes'
    if any(getattr(x, 'with_cp', False) for x in model.modules()):
        return 'with_cp computes layers again in the backward pass'
    if not isinstance(runner.optim_wrapper, OptimWrapper):
        return 'there are several optimizers'
    if runner.train_dataloader.pin_memory and runner.train_dataloader.num_workers:
        return 'a thread of the data loader (pin_memory) would disturb the capture'
    return 'compile=True compiles the whole model' if runner.cfg.get('compile') else ''
