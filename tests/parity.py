"""Whether what runs is as exact as the definition, in a precision and in a way of running."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from helpers import assert_close
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from mmbixt.attention import by_definition

FEW = 100  # values of a tensor; with fewer, the whole error may be one rounding
# Relative; more, and the errors differ from draw to draw: fused attention (FlashAttention's, too)
# computes gradients from outputs that are rounded to half precision, which some draws amplify.
LARGE = 0.01
DRAWS = 4  # of random numbers in these cases; the mean of the squared errors counts


class Precision(NamedTuple):
    """``dtype`` of weights and inputs; ``unit``, a relative error that is always allowed.

    In half precision about one rounding; in float32 several, as fused kernels add in parts.
    """

    dtype: torch.dtype
    autocast: torch.dtype | None
    unit: float
    tf32: bool = False


PRECISIONS = {
    'fp32': Precision(torch.float32, None, 2**-21),
    'amp bf16': Precision(torch.float32, torch.bfloat16, 2**-9),
    'amp fp16': Precision(torch.float32, torch.float16, 2**-12),
    'bf16': Precision(torch.bfloat16, None, 2**-9),
    'fp16': Precision(torch.float16, None, 2**-12),
    'TF32': Precision(torch.float32, None, 2**-12, tf32=True),
}
EXACT = Precision(torch.float64, None, 0.0)


class Call(nn.Module):
    """A function or a module, and its inputs.

    All floating-point tensors are parameters, so ``.to()`` takes them to a device and a dtype.
    """

    def __init__(self, function: Callable, inputs: list) -> None:
        super().__init__()
        self.function = function
        self.inputs = nn.ParameterList(
            nn.Parameter(x, x.requires_grad) if isinstance(x, Tensor) else x for x in inputs
        )


# --- Ways of running: the results of a call, and the gradients of its parameters ------------------

Outcome = tuple[list[Tensor], list[Tensor | None]]


def eager(call: Call, precision: Precision = EXACT, function: Callable | None = None) -> Outcome:
    """Autocast ends before the backward pass, as in training, and drops its copies of weights."""
    wanted = [p for p in call.parameters() if p.requires_grad]
    with torch.autocast(
        wanted[0].device.type, precision.autocast, enabled=precision.autocast is not None
    ):
        results = tensors((call.function if function is None else function)(*call.inputs))
    # weights in place of a sum of the results, which could overflow in half precision
    weights = [
        torch.cos(torch.arange(x.numel(), device=x.device)).view_as(x).to(x) for x in results
    ]
    return results, list(torch.autograd.grad(results, wanted, weights, allow_unused=True))


def tensors(tree: Any) -> list[Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def compiled(call: Call, precision: Precision) -> Outcome:
    torch._dynamo.reset()
    return eager(call, precision, torch.compile(call.function, fullgraph=True, dynamic=False))


def in_graph(call: Call, precision: Precision) -> Outcome:
    """A forward and backward pass in one CUDA graph, captured on other values than it runs with.

    CUDA raises an error where the CPU would wait for the GPU.
    """
    values = [p.detach().clone() for p in call.parameters()]
    for p in call.parameters():
        p.data *= 0.5
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            eager(call, precision)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results, gradients = eager(call, precision)
    for p, value in zip(call.parameters(), values, strict=True):
        p.data.copy_(value)
    graph.replay()  # into the memory of the results and gradients, which is the graph's
    return [x.clone() for x in results], [None if x is None else x.clone() for x in gradients]


WAYS = {'eager': eager, 'CUDA graph': in_graph, 'compiled': compiled}  # all but eager on GPUs only


# --- Comparisons ----------------------------------------------------------------------------------


def assert_same(actual: Outcome, expected: Outcome, tolerance: float) -> None:
    """Gradients are compared on one scale, because some are zero within rounding."""
    for ours, theirs in zip(actual[0], expected[0], strict=True):
        assert_close(ours, theirs, tolerance)
    scale = max((float(x.abs().max()) for x in expected[1] if x is not None), default=1.0)
    for ours, theirs in zip(actual[1], expected[1], strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or (ours - theirs).abs().max() <= tolerance * scale


def assert_as_exact(
    make: Callable[[], tuple], precision: Precision, way: str = 'eager', device: str = 'cpu'
) -> None:
    """At most 1.5 times the error of the definition with one ``unit``; no error is NaN.

    Errors of the results and of the gradients of a case, relative to float64.
    """
    draws, found = 1, []
    while len(found) < draws:
        torch.manual_seed(len(found))
        with torch.device(device):
            call = Call(*make()).to(device, precision.dtype)
        with by_definition():
            truth = eager(copy.deepcopy(call).double())
            with tf32(precision.tf32):
                definition = eager(copy.deepcopy(call), precision)
        with tf32(precision.tf32):
            ours = WAYS[way](call, precision)
        assert {x.dtype for x in ours[0]} <= {precision.dtype, precision.autocast}
        found.append([[distance(x[i], truth[i]) for x in (ours, definition)] for i in (0, 1)])
        is_few = sum(x.numel() for x in truth[0]) < FEW
        draws = DRAWS if is_few or found[0][1][1] > LARGE else 1
    errors = torch.tensor(found, dtype=torch.float64).square().mean(0).sqrt().tolist()
    for part, (error, of_definition) in zip(('results', 'gradients'), errors, strict=True):
        assert error <= 1.5 * (of_definition + precision.unit), (part, error, of_definition)


@torch.no_grad()
def distance(found: list[Tensor | None], truth: list[Tensor | None]) -> float:
    """Root mean square over the tensors of their relative errors.

    The error of a tensor is divided by its size, or by a thousandth of the largest tensor's size if
    that is more. That of a tensor that is zero is divided by the largest one's size: it is a sum
    that cancels, such as the gradient of a bias before a batch norm or of the only key of an
    attention, and as inexact as its terms.
    """
    pairs = [(f, t) for f, t in zip(found, truth, strict=True) if t is not None and t.numel()]
    largest = max(float(t.square().mean().sqrt()) for _, t in pairs)
    total = 0.0
    for f, t in pairs:
        assert getattr(f, 'shape', None) == t.shape, f'a tensor of shape {t.shape} is missing'
        size = float(t.square().mean().sqrt())
        size = max(size, (1e-3 if size > 1e-12 * largest else 1) * largest, 1e-30)
        total += float((f.double() - t).square().mean()) / size**2
    return (total / len(pairs)) ** 0.5


@contextmanager
def tf32(enabled: bool) -> Iterator[None]:
    """By the older names of the settings: where only the newer ones are set, inductor fails when it
    reads the older ones (torch 2.11)."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = enabled
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
