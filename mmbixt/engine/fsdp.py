"""Weights, gradients and optimizer state distributed over processes (FSDP)."""

from functools import partial
from typing import Any

import torch
from mmengine._strategy import FSDPStrategy as StockFSDPStrategy  # only exported there
from mmengine.optim import OptimWrapper
from torch import Tensor, nn
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy

from mmbixt.backbones.base import DenseBackbone
from mmbixt.registry import STRATEGIES


@STRATEGIES.register_module()
class FSDPStrategy(StockFSDPStrategy):
    """mmengine's FSDP for mmbixt's backbones and safe checkpoints, on GPUs and on CPUs.

    Each block of a backbone is one FSDP unit: its weights are gathered only while it runs. A
    checkpoint is one file with all weights, as without FSDP.

    Args:
        model_wrapper: options of mmengine's ``MMFullyShardedDataParallel``, such as
            ``cpu_offload=True`` or another ``auto_wrap_policy``.
        kwargs: options of mmengine's strategy, such as ``sync_bn='torch'``.

    Example:
        >>> runner_type = 'FlexibleRunner'
        >>> strategy = dict(type='mmbixt.FSDPStrategy')
    """

    def __init__(self, *, model_wrapper: dict | None = None, **kwargs: Any) -> None:
        model_wrapper = {'type': 'MMFullyShardedDataParallel', **(model_wrapper or {})}
        has_gpu = torch.cuda.is_available()
        if not has_gpu:
            model_wrapper['device_id'] = 'cpu'
        super().__init__(model_wrapper=model_wrapper, state_dict_cfg='full', **kwargs)
        # mmbixt's backbones compare all of their weights with those of a file, so each rank gathers
        # all. No offload on a CPU: torch would return the weights without a copy, then free them.
        options = dict(rank0_only=False, offload_to_cpu=has_gpu)
        self.state_dict_config = FullStateDictConfig(**options)
        self.optim_state_dict_config = FullOptimStateDictConfig(**options)

    def build_model(self, model: nn.Module | dict) -> nn.Module:
        model = super().build_model(model)
        backbones = [part for part in model.modules() if isinstance(part, DenseBackbone)]
        blocks = {layer.module for backbone in backbones for layer in backbone.layer_list()}
        policy = partial(lambda_auto_wrap_policy, lambda_fn=blocks.__contains__)
        self.model_wrapper.setdefault('auto_wrap_policy', policy)
        # mmengine's strategy ignores ``sync_bn``
        return self.convert_model(model) if torch.cuda.is_available() else model

    def build_optim_wrapper(self, optim_wrapper: Any, model: nn.Module) -> OptimWrapper:
        built = super().build_optim_wrapper(optim_wrapper, model)
        if getattr(built, 'clip_func', None) is nn.utils.clip_grad_norm_:
            # FSDP's method uses the norm of all gradients, torch's function only this rank's
            built.clip_func = lambda _, **options: model.clip_grad_norm_(**options)
        return built

    def model_state_dict(self) -> dict[str, Tensor]:
        """Plain tensors: torch adds attributes to them, which safe readers refuse."""
        return {name: weight.detach() for name, weight in super().model_state_dict().items()}

    def load_optim_state_dict(self, state_dict: dict) -> None:
        """As mmengine's method, which passes positional arguments in the order of torch 2.0."""
        optimizer = self.optim_wrapper.optimizer
        state = self.model.optim_state_dict_to_load(
            model=self.model, optim=optimizer, optim_state_dict=state_dict
        )
        self.optim_wrapper.load_state_dict(state)
