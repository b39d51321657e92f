"""What mixed precision is at work."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def is_autocast(x: Tensor) -> bool:
    """Whether autocast is on where a tensor lives; on the meta device there is none."""
    return x.device.type != 'meta' and torch.is_autocast_enabled(x.device.type)


def is_half(x: Tensor) -> bool:
    """Whether products of a tensor are computed in half precision."""
    return is_autocast(x) or x.dtype in (torch.float16, torch.bfloat16)


def without_autocast(x: Tensor) -> AbstractContextManager:
    """Where a tensor lives, compute in the precision that the tensors have."""
    return torch.autocast(x.device.type, enabled=False) if is_autocast(x) else nullcontext()
