"""How a fast path is compared with the reference, on the inputs of ``mmbixt.gpu_check``."""

from collections.abc import Callable, Sequence

import torch
from helpers import assert_close
from torch import Tensor

from mmbixt import ops
from mmbixt.gpu_check.cases import (
    CASES,
    alone,
    bixt,
    inverse,
    learned,
    linear,
    mlp,
    norm,
    routing,
    windows,
    xca,
)

__all__ = [
    'CASES',
    'FIRST',
    'alone',
    'assert_same',
    'bixt',
    'inverse',
    'learned',
    'linear',
    'mlp',
    'norm',
    'on',
    'routing',
    'windows',
    'with_gradients',
    'xca',
]
FIRST = {make.__name__: (make, *next(iter(shapes.values()))) for make, shapes in CASES.items()}


def with_gradients(function: Callable, inputs: Sequence) -> tuple[list[Tensor], list]:
    """The results, and a gradient for each input that needs one; None where it is not used."""
    results = function(*inputs)
    results = [results] if isinstance(results, Tensor) else [x for x in results if x is not None]
    loss = sum((x * torch.cos(torch.arange(x.numel())).to(x).view_as(x)).sum() for x in results)
    given = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    return results, list(torch.autograd.grad(loss, given, allow_unused=True))


def on(path: str, function: Callable, inputs: Sequence) -> tuple[list[Tensor], list]:
    with ops.use_ops(path):
        return with_gradients(function, inputs)


def assert_same(actual: tuple[list, list], expected: tuple[list, list], tolerance: float) -> None:
    """Gradients are compared on one scale, because some are zero within rounding."""
    for ours, theirs in zip(actual[0], expected[0], strict=True):
        assert_close(ours, theirs, tolerance)
    scale = max((float(x.abs().max()) for x in expected[1] if x is not None), default=1.0)
    for ours, theirs in zip(actual[1], expected[1], strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or (ours - theirs).abs().max() <= tolerance * scale
