"""Sizes of feature maps, which are symbols in programs of exporters and compilers."""

import torch
from torch import Tensor
from torch.nn.functional import pad


def known_true(condition: bool | torch.SymBool) -> bool:
    """Whether a condition on sizes holds, for all sizes for which a program is made.

    With an ``if`` on symbolic sizes, an exported program would contain only the branch of its
    example, and a compiled program would be compiled again for the other branch.
    """
    if not torch.compiler.is_compiling():
        return condition
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # takes a second

    return statically_known_true(condition)


def padding_to_multiple(length: int, size: int) -> int:
    """How many cells to add to a side to make it a multiple of a size: ``-length % size``."""
    # a quotient: inductor (of torch 2.11) fails for remainders of symbolic sizes
    return ceil_div(length, size) * size - length


def ceil_div(length: int, size: int) -> int:
    """``length / size`` rounded up, in a form that exporters can compare with other sizes."""
    return (length + size - 1) // size


def extend_to_multiple(x: Tensor, size: int) -> Tensor:
    """(B,H,W,C) with zeros at the right and the bottom, so that ``size`` divides H and W."""
    bottom, right = (padding_to_multiple(side, size) for side in x.shape[1:3])
    if known_true(bottom + right == 0):  # pad always copies
        return x
    return pad(x, (0, 0, 0, right, 0, bottom))


def crop(x: Tensor, height: int, width: int) -> Tensor:
    """The first rows and columns of feature maps (B,H,W,C)."""
    if known_true(height <= x.shape[1]) and known_true(width <= x.shape[2]):
        return x[:, :height, :width]
    # with symbolic sizes, exporters do not know the size of a slice
    for dim, length in ((1, height), (2, width)):
        x = x.index_select(dim, torch.arange(length, device=x.device))
    return x


def smaller(a: int, b: int) -> int:
    """The minimum of two sizes, which stays a symbol in an exported program."""
    return torch.sym_min(a, b) if _has_symbols() else min(a, b)


def larger(a: int, b: int) -> int:
    """The maximum of two sizes, which stays a symbol in an exported program."""
    return torch.sym_max(a, b) if _has_symbols() else max(a, b)


def _has_symbols() -> bool:
    """Whether sizes may be symbols; Dynamo and ``torch.jit.trace`` trace ``min`` and ``max``."""
    return not (torch.compiler.is_dynamo_compiling() or torch.jit.is_tracing())
