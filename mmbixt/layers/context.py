"""How a layer runs: by its definition or fast, in which precision, plainly or traced.

The definitions are plain products and softmaxes, so they have all derivatives: second ones,
forward-mode ones, and those of ``torch.func``. Fused attention has first derivatives only.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.func import functional_call

_is_on = False  # a global variable, because compilers check these before they reuse a program


def is_by_definition() -> bool:
    return _is_on


@contextmanager
def by_definition() -> Iterator[None]:
    """Compute all attentions of a block of code by their definitions, in all threads.

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


def call_in_float32(conv: nn.Module, x: Tensor) -> Tensor:
    """``conv(x)``, on CPUs computed in float32 where half precision is asked for.

    In bfloat16, oneDNN (of torch 2.11) is wrong on CPUs with AMX for patches of 16 x 16 pixels of
    4, 6, 8 and more channels. For 3 channels it takes 5 to 40 times as long as in float32.
    """
    dtype = half_dtype(x)
    if dtype is None or x.dtype == torch.float64 or x.device.type != 'cpu' or is_exporting():
        return conv(x)
    weights = {name: p.float() for name, p in conv.named_parameters()}
    with without_autocast(x):
        return functional_call(conv, weights, x.float()).to(dtype)


def is_exporting() -> bool:
    """Whether a program is exported, which must be valid for other sizes than its example's."""
    if torch.compiler.is_dynamo_compiling():  # Dynamo (of torch 2.11) says that it is exporting
        return False
    return torch.compiler.is_exporting() or torch.jit.is_tracing()
