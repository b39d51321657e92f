"""In which precision products of tensors are computed."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def is_autocast(x: Tensor) -> bool:
    """Whether autocast is on for the device of a tensor; the meta device has none."""
    return x.device.type != 'meta' and torch.is_autocast_enabled(x.device.type)


def is_half(x: Tensor) -> bool:
    """Whether products of a tensor are computed in half precision."""
    return is_autocast(x) or x.dtype in (torch.float16, torch.bfloat16)


def half_dtype(x: Tensor) -> torch.dtype | None:
    """The half precision in which products of a tensor are computed, or None."""
    if is_autocast(x):
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype if is_half(x) else None


def without_autocast(x: Tensor) -> AbstractContextManager:
    """A context without autocast on the device of a tensor."""
    return torch.autocast(x.device.type, enabled=False) if is_autocast(x) else nullcontext()


def is_reduced_float32(x: Tensor) -> bool:
    """Whether products of a float32 tensor are rounded to TF32 or bfloat16 on its device."""
    return x.dtype == torch.float32 and _rounds_float32(x.device.type)


@torch.compiler.assume_constant_result  # compilers cannot trace the settings
def _rounds_float32(device: str) -> bool:
    backend = torch.backends.mkldnn if device == 'cpu' else torch.backends.cuda
    return backend.matmul.fp32_precision in ('tf32', 'bf16')
