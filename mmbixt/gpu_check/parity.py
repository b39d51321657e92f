"""Whether fast paths are as exact as the plain order, in every precision and way of running."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from mmbixt.gpu_check.cases import Call
from mmbixt.ops import use_ops
from mmbixt.ops.explain import autocast

BACKEND = 'inductor'
FEW = 100  # values of a tensor; with fewer, the whole error may be one rounding
DRAWS = 4  # of random numbers for such tensors; the errors of all draws are added


class Precision(NamedTuple):
    """``dtype`` of weights and inputs; ``unit``, a relative error that is always allowed.

    In half precision about one rounding; in float32 several, as fused kernels add in parts.
    """

    name: str
    dtype: torch.dtype
    autocast: torch.dtype | None
    unit: float


PRECISIONS = (
    Precision('fp32', torch.float32, None, 2**-21),
    Precision('amp bf16', torch.float32, torch.bfloat16, 2**-9),
    Precision('amp fp16', torch.float32, torch.float16, 2**-12),
    Precision('bf16', torch.bfloat16, None, 2**-9),
    Precision('fp16', torch.float16, None, 2**-12),
    Precision('TF32', torch.float32, None, 2**-12),
)


@contextmanager
def settings_for(precision: Precision) -> Iterator[None]:
    """Switch TF32 on or off, and back afterwards.

    By the older names of the settings: where only the newer ones are set, inductor fails when it
    reads the older ones (torch 2.11).
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = precision.name == 'TF32'
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


# --- Ways of running: of a call, its results and the gradients of its parameters ------------------

Outcome = tuple[list[Tensor], list[Tensor | None]]


def eager(call: Call, precision: Precision, function: Callable | None = None) -> Outcome:
    """Autocast ends before the backward pass, as in training, and drops its copies of weights."""
    wanted = [p for p in call.parameters() if p.requires_grad]
    kind = wanted[0].device.type
    with torch.autocast(kind, precision.autocast, enabled=precision.autocast is not None):
        results = _tensors((call.function if function is None else function)(*call.inputs))
    # weights in place of a sum of the results, which could overflow in half precision
    weights = [torch.cos(torch.arange(x.numel(), device=kind)).view_as(x).to(x) for x in results]
    return results, list(torch.autograd.grad(results, wanted, weights, allow_unused=True))


def without_synchronisation(call: Call, precision: Precision) -> Outcome:
    """torch raises an error where the host waits for the GPU. The first call starts libraries."""
    eager(call, precision)
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode('error')
    try:
        return eager(call, precision)
    finally:
        torch.cuda.set_sync_debug_mode(before)


def in_graph(call: Call, precision: Precision) -> Outcome:
    """A forward and backward pass in one CUDA graph, captured on other values than it runs with."""
    values = [p.detach().clone() for p in call.parameters()]
    _set(call, [value / 2 for value in values])
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            eager(call, precision)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outcome = eager(call, precision)
    _set(call, values)
    graph.replay()
    results, gradients = outcome  # their memory is the graph's
    return [x.clone() for x in results], [None if x is None else x.clone() for x in gradients]


def compiled(call: Call, precision: Precision) -> Outcome:
    torch._dynamo.reset()
    function = torch.compile(call.function, fullgraph=True, dynamic=False, backend=BACKEND)
    return eager(call, precision, function)


def by_triton(call: Call, precision: Precision) -> Outcome:
    with use_ops('triton'):
        return eager(call, precision)


WAYS = {
    'eager': eager,
    'Triton': by_triton,
    'no sync': without_synchronisation,
    'CUDA graph': in_graph,
    'compiled': compiled,
}


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


@torch.no_grad()
def _set(call: Call, values: list[Tensor]) -> None:
    for parameter, value in zip(call.parameters(), values, strict=True):
        parameter.copy_(value)


# --- Parity ---------------------------------------------------------------------------------------


def check(make: Callable[[], tuple], device: str, way: str, precision: Precision) -> dict:
    """Compare a case in some way of running with its reference in float64.

    The reference in the same precision sets the bound: 1.5 times its error with one ``unit``.

    Returns:
        'status', 'text', and the errors of results and gradients.
    """
    draws, errors = 1, []
    while len(errors) < draws:
        torch.manual_seed(len(errors))
        truth, ours, plain = _outcomes(make, device, way, precision)
        draws = DRAWS if sum(x.numel() for x in truth[0]) < FEW else 1
        parts = zip(truth, ours, plain, strict=True)  # results, and gradients
        errors.append([[error(x, exact) for x in found] for exact, *found in parts])
    figures = torch.tensor(errors, dtype=torch.float64).square().mean(0).sqrt()
    far, near = figures.unbind(1)
    worst = float((far / (near + precision.unit)).max())  # NaN if one is
    dtypes = {x.dtype for x in ours[0]}
    is_right = worst <= 1.5 and dtypes <= {precision.dtype, precision.autocast}
    text = f'{worst:.2f}'
    found = dict(zip(('results', 'gradients'), figures.tolist(), strict=True))
    if not is_right:
        texts = [f'{x} off by {a:.1e}, {b:.1e} in the plain order' for x, (a, b) in found.items()]
        text = f'{", ".join(texts)}; results are {", ".join(map(str, dtypes))}'
    return dict(status='ok' if is_right else 'failed', text=text, **found)


def _outcomes(make: Callable, device: str, way: str, precision: Precision) -> tuple[Outcome, ...]:
    """Of the reference in float64, of the case run in ``way``, and of the reference."""
    with torch.device(device):
        call = Call(*make()).to(device, precision.dtype)
    exact = copy.deepcopy(call).double()
    with use_ops('reference'):
        truth = eager(exact, PRECISIONS[0])
        with settings_for(precision):
            plain = eager(copy.deepcopy(call), precision)
    with settings_for(precision):
        return truth, WAYS[way](call, precision), plain


@torch.no_grad()
def error(found: list[Tensor | None], truth: list[Tensor | None]) -> float:
    """Root mean square over the tensors of their relative errors.

    The error of a tensor is divided by its size, or by a thousandth of the largest tensor's size if
    that is more: some are zero except for rounding.
    """
    pairs = [(f, t) for f, t in zip(found, truth, strict=True) if t is not None and t.numel()]
    largest = max(float(t.square().mean().sqrt()) for _, t in pairs)
    total = 0.0
    for f, t in pairs:
        if f is None or f.shape != t.shape:
            raise AssertionError(f'a result or gradient of shape {tuple(t.shape)} is missing')
        size = max(float(t.square().mean().sqrt()), 1e-3 * largest, 1e-30)
        total += float((f.double() - t).square().mean()) / size**2
    return (total / len(pairs)) ** 0.5


# --- Without a GPU --------------------------------------------------------------------------------


def check_on_fake_tensors(make: Callable[[], tuple], precision: Precision) -> dict:
    """A forward pass on CUDA tensors without data: an operator that reads values fails."""
    with on_fake_gpu(precision):
        call = Call(*make())
        results = _tensors(call.function(*call.inputs))
    kinds = {(x.device.type, x.dtype) for x in results}
    dtypes = {precision.dtype, precision.autocast}
    if not results or any(kind != 'cuda' or dtype not in dtypes for kind, dtype in kinds):
        return dict(status='failed', text=f'results are {kinds}')
    return dict(status='ok', text='ok')


@contextmanager
def on_fake_gpu(precision: Precision) -> Iterator[None]:
    amp = autocast('cuda', precision.autocast)
    with default_dtype(precision.dtype), FakeTensorMode(), torch.device('cuda'), amp:
        yield


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
