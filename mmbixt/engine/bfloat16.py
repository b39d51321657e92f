"""Mixed precision without a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from mmengine.optim import OptimWrapper
from mmengine.runner.amp import autocast
from torch import nn

from mmbixt.registry import OPTIM_WRAPPERS


@OPTIM_WRAPPERS.register_module()
class BFloat16OptimWrapper(OptimWrapper):
    """``OptimWrapper`` with forward passes and losses under autocast to bfloat16, on any device.

    mmengine's ``AmpOptimWrapper`` cannot be built without a GPU. It also scales the loss, which
    only float16 needs: bfloat16 has the range of float32.

    Example:
        >>> optim_wrapper = dict(type='mmbixt.BFloat16OptimWrapper', optimizer=dict(type='AdamW'))
    """

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        with super().optim_context(model), autocast(dtype=torch.bfloat16):
            yield
