"""The one switch that says on which path every op runs.

``MMBIXT_OPS=auto|reference|torch|triton`` sets it for a process, :func:`use_ops` for a block of
code. ``auto`` takes the fastest path that is verified for what is at hand; any other name takes
that path or raises an error that says why it cannot run.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

PATHS = ('auto', 'reference', 'torch', 'triton')


def _checked(path: str) -> str:
    if path not in PATHS:
        raise ValueError(f'MMBIXT_OPS={path!r} is not a path of the ops; choose one of {PATHS}.')
    return path


_current = _checked(os.environ.get('MMBIXT_OPS', 'auto'))


def ops_path() -> str:
    """The path in force: one of :data:`PATHS`."""
    return _current


@contextmanager
def use_ops(path: str) -> Iterator[None]:
    """Run a block of code on one path: ``with use_ops('reference'): model(x)``."""
    global _current
    previous, _current = _current, _checked(path)
    try:
        yield
    finally:
        _current = previous


def is_eager() -> bool:
    """Whether operations run as they are called, and no compiler or tracer looks at them first."""
    return not torch.compiler.is_compiling() and not torch.jit.is_tracing()


def calls_operators() -> bool:
    """Whether operators of our own can be called: as we run, or by a compiler.

    Exporters, whose programs are to run where we are not, are left plain operations; but for
    ``torch.export`` with ``strict=True``, which passes for a compiler.
    """
    return is_eager() or torch.compiler.is_dynamo_compiling()


def needs_gradients(*tensors: Tensor | None) -> bool:
    """Whether a backward pass may follow, and is to be prepared for.

    To be asked outside of ``torch.autograd.Function``, within which autograd is off.
    """
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def choose_path(op: str, paths: Mapping[str, Callable]) -> Callable:
    """The implementation to run. ``paths`` is ordered: its first entry is what ``auto`` takes."""
    if _current == 'auto':
        return next(iter(paths.values()))
    if _current not in paths:
        raise ValueError(
            f'MMBIXT_OPS={_current}: {op} has no such path; it has {", ".join(paths)} (and auto).'
        )
    return paths[_current]
