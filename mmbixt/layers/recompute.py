"""Values that the backward pass computes again on CPUs, to use less memory."""

from contextlib import AbstractContextManager, nullcontext
from weakref import ref

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import gelu

from mmbixt.layers.context import is_transformed


def without_keeping(activated: Tensor) -> AbstractContextManager:
    """A context in which layers do not keep the result of a GELU, only its input.

    On GPUs the second GELU costs more time than the memory justifies. Compilers decide themselves
    what to keep, and ``torch.func`` cannot recompute.
    """
    if torch.compiler.is_compiling() or is_transformed() or activated.device.type != 'cpu':
        return nullcontext()
    node = activated.grad_fn
    if type(node).__name__ != 'GeluBackward0' or not activated.is_contiguous():
        return nullcontext()
    if torch._C._autograd._top_saved_tensors_default_hooks(
        False
    ):  # of gradient checkpointing, for example
        return nullcontext()
    result = ref(activated)  # weak, or these hooks would keep the result

    def pack(kept: Tensor) -> torch.Size | tuple[Tensor, int]:
        x = result()
        is_result = kept.data_ptr() == x.data_ptr() and kept.numel() == x.numel()
        is_unchanged = kept.is_contiguous() and x._version == 0
        return kept.shape if is_result and is_unchanged else (kept, kept._version)

    def unpack(kept: torch.Size | tuple[Tensor, int]) -> Tensor:
        if isinstance(kept, torch.Size):
            return gelu(node._saved_self, approximate=node._saved_approximate).view(kept)
        tensor, version = kept
        if tensor._version != version:  # torch checks this only without hooks
            raise RuntimeError(
                'A tensor needed for the gradient was modified by an inplace operation.'
            )
        return tensor

    return saved_tensors_hooks(pack, unpack)
