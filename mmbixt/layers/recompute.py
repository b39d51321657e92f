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
    if type(node).__name__ != 'GeluBackward0':
        return nullcontext()
    if torch._C._autograd._top_saved_tensors_default_hooks(False):  # such as checkpointing's
        return nullcontext()
    result, version = ref(activated), activated._version  # not kept by the hooks either

    def pack(kept: Tensor) -> Tensor | torch.Size:
        x = result()
        is_result = kept.data_ptr() == x.data_ptr() and kept.numel() == x.numel()
        return kept.shape if is_result and x._version == version else kept

    def unpack(kept: Tensor | torch.Size) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        return gelu(node._saved_self, approximate=node._saved_approximate).view(kept)

    return saved_tensors_hooks(pack, unpack)
