"""A switch from the formulations that run to the definitions, which are slower.

The definitions are plain products and softmaxes, so they have all derivatives: second ones,
forward-mode ones, and those of ``torch.func``. Fused attention has first derivatives only.
"""

from collections.abc import Iterator
from contextlib import contextmanager

_is_on = False  # a global, because compilers guard these


def is_by_definition() -> bool:
    return _is_on


@contextmanager
def by_definition() -> Iterator[None]:
    """Compute all attentions of a block of code by their definitions, in all threads.

    With gradient checkpointing, which computes again, it must also hold in the backward pass.
    """
    global _is_on
    before, _is_on = _is_on, True
    try:
        yield
    finally:
        _is_on = before
