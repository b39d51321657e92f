"""Say what ``load_from`` does not load, or refuse the file."""

import logging

from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.model import BaseTTAModel, is_model_wrapper
from mmengine.runner import BaseLoop, Runner
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

from mmbixt.checkpoints.adapters import note_adapters
from mmbixt.checkpoints.state_dict import CheckpointMismatchError, load_whole_state, unwrap
from mmbixt.engine.start import start_from
from mmbixt.progress import errors_only
from mmbixt.registry import HOOKS


@HOOKS.register_module()
class LoadFromHook(Hook):
    """Start training from the file of a whole model, which may have other classes.

    One message names what is initialised anew: layers with another number of outputs, and parts
    that the file does not have. If only some weights of a part fit, this is an error; mmengine
    would only log it. To resume, a file must have all weights of the model.

    Example:
        >>> default_hooks = dict(load_from=dict(type='mmbixt.LoadFromHook'))
    """

    priority = 'HIGH'  # before EMAHook, which copies the weights

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        note_adapters(unwrapped(runner.model), checkpoint)

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        if not isinstance(runner._train_loop, BaseLoop):  # a test
            return
        if not (given := unwrap(checkpoint)):
            raise CheckpointMismatchError(f'{runner._load_from} has no weights.')
        model, message = unwrapped(runner.model), ''
        with errors_only(runner.logger):  # mmengine loads the weights again, and logs this
            if runner._resume:
                load_whole_state(model, checkpoint)
            else:
                checkpoint['state_dict'], message = start_from(model, given)
        if message:
            print_log(f'load_from={runner._load_from}: {message}.', 'current', logging.WARNING)


def unwrapped(model: nn.Module) -> nn.Module:
    """A model without wrappers; FSDP's stays, because its module has only shards."""
    wrapped = is_model_wrapper(model) or isinstance(model, BaseTTAModel)
    if wrapped and not isinstance(model, FullyShardedDataParallel):
        return unwrapped(model.module)
    return model
