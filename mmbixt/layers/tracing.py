"""Whether a compiler, an exporter or ``torch.func`` is at work."""

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true


def is_exporting() -> bool:
    """Whether a program is exported, which must be valid for other sizes than its example's."""
    return _exports() or torch.jit.is_tracing()


@torch.compiler.assume_constant_result  # Dynamo (of torch 2.11) would assume that it is true
def _exports() -> bool:
    return torch.compiler.is_exporting()


def holds(condition: bool | torch.SymBool) -> bool:
    """Whether a condition on sizes holds, for all sizes for which a program is made.

    With an ``if`` on symbolic sizes, an exported program would contain only the branch of its
    example, and a compiled program would be compiled again for the other branch.
    """
    return statically_known_true(condition) if torch.compiler.is_compiling() else condition


def is_transformed() -> bool:
    """Whether a transform of ``torch.func`` is active (torch has no public name for it)."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()
