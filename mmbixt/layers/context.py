"""How a layer runs: by its paper's equations or faster, and in which precision.

The equations are plain products and softmaxes, so they have all derivatives: second ones,
forward-mode ones, and those of ``torch.func``. Fused attention has first derivatives only.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

_is_on = False  # compilers check global variables before they reuse a compiled program


def is_by_definition() -> bool:
    return _is_on


@contextmanager
def by_definition() -> Iterator[None]:
    """Within ``with by_definition():`` all attentions are computed as their papers write them.

    With gradient checkpointing, the backward pass must also run within the block.
    """
    global _is_on
    before, _is_on = _is_on, True
    try:
        yield
    finally:
        _is_on = before


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
