"""Values that the backward pass computes again on CPUs, to keep less memory."""

from contextlib import AbstractContextManager, nullcontext
from weakref import ref

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import gelu

from mmbixt.layers.tracing import is_transformed


def without_keeping(activated: Tensor) -> AbstractContextManager:
    """A context in which layers keep the result of a GELU by its input, which it keeps itself.

    On GPUs, moving values once more takes longer than they are worth. Compilers decide for
    themselves what they keep, and ``torch.func`` cannot recompute.
    """
    if torch.compiler.is_compiling() or is_transformed() or activated.device.type != 'cpu':
        return nullcontext()
    node = activated.grad_fn
    if type(node).__name__ != 'GeluBackward0' or not activated.is_contiguous():
        return nullcontext()
    if torch._C._autograd._top_saved_tensors_default_hooks(False):  # such as checkpointing's
        return nullcontext()
    result = ref(activated)  # not kept by the hooks either

    def pack(kept: Tensor) -> torch.Size | tuple[Tensor, int]:
        x = result()
        is_result = kept.data_ptr() == x.data_ptr() and kept.numel() == x.numel()
        is_unchanged = kept.is_contiguous() and x._version == 0
        return kept.shape if is_result and is_unchanged else (kept, kept._version)

    def unpack(kept: torch.Size | tuple[Tensor, int]) -> Tensor:
        if isinstance(kept, torch.Size):
            return gelu(node._saved_self, approximate=node._saved_approximate).view(kept)
        tensor, version = kept
        if tensor._version != version:  # which torch checks without hooks only
            raise RuntimeError(
                'A tensor needed for the gradient was modified by an inplace operation.'
            )
        return tensor

    return saved_tensors_hooks(pack, unpack)
