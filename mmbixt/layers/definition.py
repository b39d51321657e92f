"""Whether attentions are computed by the equations of their papers, or faster.

The equations are plain products and softmaxes, so they have all derivatives: second ones,
forward-mode ones, and those of ``torch.func``. Fused attention has first derivatives only.
"""

from collections.abc import Iterator
from contextlib import contextmanager

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
