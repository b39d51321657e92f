"""The precision in which products are computed, under autocast or not."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def is_autocast(x: Tensor) -> bool:
    """Whether autocast is on for the device of a tensor; the meta device has none."""
    return x.device.type != 'meta' and torch.is_autocast_enabled(x.device.type)


def half_dtype(x: Tensor) -> torch.dtype | None:
    """The half precision in which products of a tensor are computed, or None."""
    if is_autocast(x):
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype if x.dtype in (torch.float16, torch.bfloat16) else None


def without_autocast(x: Tensor) -> AbstractContextManager:
    """A context without autocast on the device of a tensor."""
    return torch.autocast(x.device.type, enabled=False) if is_autocast(x) else nullcontext()
