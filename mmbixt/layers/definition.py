"""A switch from the fast implementations to the definitions, which are slower.

The definitions are plain products and softmaxes, so they have all derivatives: second ones,
forward-mode ones, and those of ``torch.func``. Fused attention has first derivatives only.
"""

from collections.abc import Iterator
from contextlib import contextmanager

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
