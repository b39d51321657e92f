"""Weights, gradients and optimizer state distributed over processes (torch's FSDP2)."""

import os
from typing import Any

from mmengine._strategy import DDPStrategy, SingleDeviceStrategy  # only exported there
from mmengine.dist import is_main_process
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor.experimental import implicit_replication

from mmbixt.backbones.base import DenseBackbone
from mmbixt.registry import STRATEGIES

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)  # in the first process alone


def shard(module: nn.Module, cpu_offload: bool = False, device_ids: Any = None) -> nn.Module:
    """Distribute the weights of each layer of the backbones, and those of the rest of the model.

    mmengine gives ``device_ids``, which are for DDP.
    """
    policy = CPUOffloadPolicy() if cpu_offload else OffloadPolicy()
    backbones = [part for part in module.modules() if isinstance(part, DenseBackbone)]
    layers = [layer.module for backbone in backbones for layer in backbone.layer_list()]
    for part in [*dict.fromkeys(layers), module]:  # layers may be used twice
        fully_shard(part, offload_policy=policy)
    return module


@STRATEGIES.register_module()
class FSDPStrategy(DDPStrategy):
    """mmengine's strategy for several processes, with torch's ``fully_shard`` in place of DDP.

    Each layer of a backbone is one unit: its weights are gathered only while it runs. A weight
    keeps its shape and name, so that groups of parameters, clipping and optimizers are those of one
    process. A checkpoint is one file with all weights, as without FSDP.

    Args:
        model_wrapper: ``dict(cpu_offload=True)`` keeps weights, gradients and optimizer on the CPU.
        kwargs: options of mmengine's ``DDPStrategy``, such as ``sync_bn='torch'``.

    Example:
        >>> runner_type = 'FlexibleRunner'
        >>> strategy = dict(type='mmbixt.FSDPStrategy')
    """

    def __init__(self, *, model_wrapper: dict | None = None, **kwargs: Any) -> None:
        super().__init__(model_wrapper={**(model_wrapper or {}), 'type': shard}, **kwargs)

    def save_checkpoint(self, filename: str, **options: Any) -> None:
        """All processes gather the weights, and the first one writes them."""
        path = filename if is_main_process() else os.devnull
        SingleDeviceStrategy.save_checkpoint(self, path, **options)

    def model_state_dict(self) -> dict[str, Tensor]:
        return get_model_state_dict(self.model, options=WHOLE)

    def load_checkpoint(self, filename: str, **options: Any) -> dict:
        with implicit_replication():  # each process copies its part of a whole tensor
            return super().load_checkpoint(filename, **options)

    def optim_state_dict(self) -> dict:
        optimizer = self.optim_wrapper.optimizer
        whole = get_optimizer_state_dict(self.model, optimizer, options=WHOLE)
        return self.optim_wrapper.state_dict() | whole

    def load_optim_state_dict(self, state_dict: dict) -> None:
        optimizer = self.optim_wrapper.optimizer
        whole = {key: state_dict.pop(key) for key in ('state', 'param_groups')}
        names: dict[int | str, str] = {}  # without FSDP parameters have numbers
        here = get_optimizer_state_dict(self.model, optimizer)['param_groups']
        for group, same in zip(whole['param_groups'], here, strict=True):
            if all(isinstance(key, int) for key in group['params']):
                names.update(zip(group['params'], same['params'], strict=True))
                group['params'] = same['params']
        whole['state'] = {names.get(key, key): value for key, value in whole['state'].items()}
        set_optimizer_state_dict(self.model, optimizer, whole, options=WHOLE)
        self.optim_wrapper.load_state_dict(state_dict | optimizer.state_dict())
