"""Training with compiled layers, one program for all layers of a kind."""

from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.runner import Runner

from mmbixt.backbones.base import DenseBackbone
from mmbixt.layers import DropPath
from mmbixt.registry import HOOKS


@HOOKS.register_module()
class CompileLayersHook(Hook):
    """Compile each layer of mmbixt's backbones in training; for GPUs, on CPUs it gains little.

    Layers of one kind share one program, so the compiler is ready sooner than with the whole model
    (``compile=True``). Evaluation, with images of many sizes, is not compiled. The names of weights
    stay as they are. ``CUDAGraphsHook`` captures the compiled programs.

    Args:
        options: of ``torch.compile``, such as ``mode='max-autotune-no-cudagraphs'``.

    Example:
        >>> custom_hooks = [dict(type='mmbixt.CompileLayersHook')]
    """

    priority = 'LOWEST'  # after SanityHook, which validates before training

    def __init__(self, **options: Any) -> None:
        self.options = dict(dynamic=False) | options

    def before_train(self, runner: Runner) -> None:
        backbones = [x for x in runner.model.modules() if isinstance(x, DenseBackbone)]
        count = sum(compile_layers(backbone, **self.options) for backbone in backbones)
        print_log(f'{count} layers are compiled in the first iteration.', 'current')

    def before_val_epoch(self, runner: Runner) -> None:
        torch.compiler.set_stance('force_eager')

    def after_val_epoch(self, runner: Runner, *_: Any, **__: Any) -> None:
        torch.compiler.set_stance('default')


def compile_layers(backbone: DenseBackbone, **options: Any) -> int:
    """Let torch compile each layer when it is first called; returns their number."""
    layers = [layer.module for layer in backbone.layer_list()]
    drops = [x for x in backbone.modules() if isinstance(x, DropPath)]
    if any(drop_path.drop_prob > 0 for drop_path in drops):
        for drop_path in drops:
            drop_path.share_program(next(backbone.parameters()).device)
    for layer in layers:
        layer.compile(**options)
    return len(layers)
