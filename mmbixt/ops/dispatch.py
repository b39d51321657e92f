"""Chooses the code path of each op, with a reason.

- ``reference``: the definition, in a few lines.
- ``portable``: plain torch operations, for any device, dtype, compiler and exporter.
- ``cpu``: our own operators, which are faster on processors (:mod:`mmbixt.ops.cpu`).
- ``triton``: kernels for GPUs (:mod:`mmbixt.ops.gpu`), of two ops; the others are as in ``auto``.

Every op has the first three paths; two of them may be the same code.
``MMBIXT_OPS=auto|reference|portable|cpu|triton`` chooses for a process, :func:`use_ops` for a block
of code. ``auto`` follows the rules below. Any other path runs, or raises an error with the op and
the reason. ``python -m mmbixt.ops.explain CONFIG`` prints the choices.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental.symbolic_shapes import statically_known_true

from mmbixt.ops.precision import half_dtype, is_autocast, is_half, is_reduced_float32

PATHS = ('auto', 'reference', 'portable', 'cpu', 'triton')
SCORES = 2**19  # attention scores that fit into the cache of one thread: 2 MB in float32
MIN_MACS = 2**23  # multiply-adds; below, calls of a convolution cost more than they save
MIN_HIDDEN = 2**18  # hidden values of an MLP; below, an operator costs more than it saves
MIN_SCORES = 2**16  # of an image and thread; below, images are computed together
MIN_VALUES = 20481  # values of the tokens; below, torch computes convolutions with MKL, too
HAS_TRITON = find_spec('triton') is not None


class PathError(ValueError):
    """The requested path does not exist or cannot run."""


class Choice(NamedTuple):
    """Which path an op takes for some inputs, and why."""

    op: str
    path: str
    why: str
    shape: tuple[int, ...]


# --- The requested path ---------------------------------------------------------------------------


def _checked(path: str) -> str:
    if path not in PATHS:
        raise PathError(f'MMBIXT_OPS={path!r} is not a path of the ops; choose one of {PATHS}.')
    return path


_PROCESS_PATH = _checked(os.getenv('MMBIXT_OPS', 'auto'))
# One value for each thread and asynchronous task; new threads start with that of the process.
_requested: ContextVar[str] = ContextVar('MMBIXT_OPS', default=_PROCESS_PATH)
# Dynamo (of torch 2.11) cannot trace context variables, but guards globals: programs are compiled
# again when this one changes, in any thread.
_last_requested = _requested.get()
_choices: ContextVar[list[Choice] | None] = ContextVar('choices', default=None)


def ops_path() -> str:
    """The requested path in this thread: one of :data:`PATHS`."""
    return _last_requested if torch.compiler.is_dynamo_compiling() else _requested.get()


@contextmanager
def use_ops(path: str) -> Iterator[None]:
    """Run a block of code on one path: ``with use_ops('reference'): model(x)``.

    Other threads are not affected, except that compiled code uses the path of the latest call in
    any thread.
    """
    global _last_requested
    token = _requested.set(_checked(path))
    _last_requested = path
    try:
        yield
    finally:
        _requested.reset(token)
        _last_requested = _requested.get()


@contextmanager
def recorded_choices() -> Iterator[list[Choice]]:
    """The choices made within a block of code, in a list that grows while it runs."""
    choices: list[Choice] = []
    token = _choices.set(choices)
    try:
        yield choices
    finally:
        _choices.reset(token)


def implementations(
    reference: Callable,
    portable: Callable | None = None,
    cpu: Callable | None = None,
    triton: Callable | None = None,
) -> dict[str, Callable]:
    """The code of an op by path; a path that is not given has the code of the path before it.

    Exception: ``triton``, which only ops with a kernel have.
    """
    portable = portable or reference
    paths = {'reference': reference, 'portable': portable, 'cpu': cpu or portable}
    return paths if triton is None else paths | {'triton': triton}


def choose(op: str, paths: Mapping[str, Callable], x: Tensor, *others: object) -> Callable:
    """The implementation of an op to run, among those of its paths.

    The choice depends on the device, dtype and shape of the input ``x``, and on ``others``, the
    further arguments of the op's rule, see :data:`RULES`.
    """
    requested = ops_path()
    if requested == 'triton' and 'triton' not in paths:
        requested = 'auto'
    if requested == 'auto' and (has_tangents() or is_nested_gradient(x)):
        path, why = 'reference', 'fused attention has first derivatives only, in reverse mode'
    elif requested == 'auto':
        path, why = RULES[op](x, *others)
    else:
        path, why = requested, 'requested by name'
        refusal = triton_refusal(x) if path == 'triton' else None
        if path == 'cpu' and paths['cpu'] is not paths['portable']:
            refusal = cpu_refusal(x)
        if refusal:
            raise PathError(f'MMBIXT_OPS={path}: {op} cannot run on this path, because {refusal}.')
    if not torch.compiler.is_dynamo_compiling() and (choices := _choices.get()) is not None:
        choices.append(Choice(op, path, why, tuple(x.shape)))
    return paths[path]


# --- The inputs and their context -----------------------------------------------------------------


_PROCESSOR = 'cpu'  # tests change it, to run on a processor the code for GPUs


def on_processor(x: Tensor) -> bool:
    """Whether a tensor is on a processor, where caches decide the speed, and not on a GPU."""
    return x.device.type == _PROCESSOR


def is_exporting() -> bool:
    """Whether a program is exported, to run where our operators are not available."""
    return _exports() or torch.jit.is_tracing()


@torch.compiler.assume_constant_result  # Dynamo (of torch 2.11) would assume that it is true
def _exports() -> bool:
    return torch.compiler.is_exporting()


def is_eager() -> bool:
    """Whether operations run when they are called: neither compiled nor exported."""
    return not (torch.compiler.is_compiling() or is_exporting())


def holds(condition: bool | torch.SymBool) -> bool:
    """Whether a condition on sizes holds, for all sizes for which a program is made.

    With an ``if`` on symbolic sizes, an exported program would contain only the branch of its
    example, and a compiled program would be compiled again for the other branch.
    """
    return statically_known_true(condition) if torch.compiler.is_compiling() else condition


def is_transformed() -> bool:
    """Whether tensors may be batched by ``vmap`` or carry tangents."""
    if torch.compiler.is_dynamo_compiling():
        return False
    return torch._C._are_functorch_transforms_active() or has_tangents()


def has_tangents() -> bool:
    """Whether forward-mode derivatives may be computed."""
    return not torch.compiler.is_dynamo_compiling() and forward_ad._current_level >= 0


def is_nested_gradient(x: Tensor) -> bool:
    """Whether ``torch.func`` takes the gradient of a gradient, or a backward pass may follow."""
    if torch.compiler.is_dynamo_compiling() or not torch._C._are_functorch_transforms_active():
        return False
    levels = torch._C._functorch.get_interpreter_stack()
    count = sum(level.key() == torch._C._functorch.TransformType.Grad for level in levels)
    if count != 1:
        return count > 1
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return x.requires_grad  # outside of torch.func


def needs_gradients(*arguments: object) -> bool:
    """Whether a backward pass to any tensor among the arguments may follow."""
    return torch.is_grad_enabled() and any(
        isinstance(x, Tensor) and x.requires_grad for x in arguments
    )


ADVICE = (
    'For derivatives beyond plain first ones set MMBIXT_OPS=reference, or run the model within '
    "mmbixt.ops.use_ops('reference')."
)


def operator_refusal() -> str | None:
    """Why our operators and autograd functions cannot be called; None if they can."""
    if is_exporting():
        return 'an exported program cannot contain our operators'
    if is_transformed():
        return 'torch.func and forward-mode derivatives cannot differentiate our operators'
    return None


def cpu_refusal(x: Tensor) -> str | None:
    """Why the operators for processors cannot compute with a tensor; None if they can."""
    if not on_processor(x):
        return f'the tensors are on {x.device.type}'
    if is_autocast(x):
        return 'autocast is on, and the operators support float32 and float64 only'
    if x.dtype not in (torch.float32, torch.float64):
        return f'the tensors are {x.dtype}, and the operators support float32 and float64 only'
    return operator_refusal() or ('there is nothing to compute' if x.numel() == 0 else None)


def triton_refusal(x: Tensor) -> str | None:
    """Why the kernels of Triton cannot compute with a tensor; None if they can."""
    if not HAS_TRITON:
        return 'Triton is not installed'
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return f'the tensors are {x.dtype}, and the kernels compute in float32'
    if x.device.type == 'cpu' and os.getenv('TRITON_INTERPRET') != '1':
        return 'the tensors are on cpu, and TRITON_INTERPRET=1 is not set'
    return operator_refusal()


# --- The rules of `auto`: for each op a function that returns a path and the reason --------------

Decision = tuple[str, str]


def _on_processors(x: Tensor, why: str) -> Decision:
    refusal = cpu_refusal(x)
    return ('portable', refusal) if refusal else ('cpu', why)


def _linear(x: Tensor, dtype: torch.dtype, out: int, images: int = 1) -> Decision:
    """For tokens (...,C), and a weight (out,C) of a dtype for each of some images."""
    if on_processor(x) and not ONEDNN_IS_FASTER:  # asked first: it takes the least time
        return 'portable', 'MKL is as fast as oneDNN here'
    refusal = cpu_refusal(x) or convolution_refusal(x, dtype, out, images)
    return ('portable', refusal) if refusal else ('cpu', 'oneDNN is faster than MKL here')


def convolution_refusal(x: Tensor, dtype: torch.dtype, out: int, images: int = 1) -> str | None:
    """Why the operators for processors do not multiply as a convolution; None if they do."""
    if not (x.dtype == dtype == torch.float32 and torch.backends.mkldnn.enabled):
        return 'convolutions of oneDNN are float32 only'
    if not ONEDNN_IS_FASTER:
        return 'MKL is as fast as oneDNN here'
    values = x.numel() // images
    if holds(values < MIN_VALUES) or holds(values * out < MIN_MACS):
        return 'the product is small'
    return None


def _layer_norm(x: Tensor) -> Decision:
    if is_eager():
        return 'portable', "torch's layer norm"
    return _on_processors(x, "compilers replace torch's layer norm by slower code")


def _feed_forward(x: Tensor, hidden: int) -> Decision:
    """For tokens (...,C), and the number of hidden channels."""
    eager, values = is_eager(), x.numel() // x.shape[-1] * hidden
    if eager and values < MIN_HIDDEN and on_processor(x):
        return 'portable', 'the MLP is small'
    path, why = _on_processors(x, 'hidden values stay in the cache')
    few = eager and values <= 2 * SCORES and not ONEDNN_IS_FASTER
    if path == 'cpu' and few and torch.is_grad_enabled():
        return 'portable', 'it takes longer to compute few hidden values again than to keep them'
    if path == 'cpu' and few and threads() > 1:
        return 'portable', 'few hidden values stay in the caches of all threads'
    if path == 'cpu' and not x.is_contiguous():
        return 'portable', 'the tokens are not contiguous in memory'
    return path, why


def _cross_covariance(x: Tensor) -> Decision:
    """For tokens (B,N,C)."""
    if holds(x.shape[1] < 2 * x.shape[2]) or holds(x.shape[0] == 0):
        return 'reference', 'with fewer than 2C tokens, Gram matrices cost more than they save'
    if half_dtype(x) == torch.bfloat16 and not on_processor(x):
        return 'portable', 'copies neither queries nor keys'
    if is_half(x):
        return 'reference', 'sums over all tokens need more range and digits than half precision'
    if is_reduced_float32(x):
        return 'reference', 'float32 products are rounded to TF32 or bfloat16'
    return 'portable', 'two products over the tokens in place of four'


def _bidirectional_attention(tokens: Tensor, latents: Tensor) -> Decision:
    """For tokens (B,h,N,d) and latents (B,h,M,d)."""
    trains = needs_gradients(tokens, latents)
    if trains and on_processor(tokens) and is_half(tokens):
        return 'reference', 'fused attention has no exact backward pass in half precision here'
    if is_eager() and on_processor(tokens):
        if threads() > 1 and not trains:
            return 'portable', 'one kernel for all images and heads uses several threads better'
        scores = tokens.shape[1] * tokens.shape[2] * latents.shape[2]
        if scores < MIN_SCORES * threads():
            return 'portable', 'images are small, and the operator computes one at a time'
    return _on_processors(tokens, 'one exponential serves both directions')


def _self_attention(q: Tensor, bias: Tensor | None) -> Decision:
    # within `vmap`, requires_grad of a bias does not show whether it needs gradients
    has_bias = bias is not None and (needs_gradients(bias) or is_transformed())
    if on_processor(q) and has_bias:
        return 'reference', 'the fused kernel for processors has no gradient for the bias'
    return 'portable', 'fused attention stores no matrix'


def _window_attention(qkv: Tensor) -> Decision:
    return _on_processors(qkv, 'a few windows at a time stay in the cache')


def _routing_attention(queries: Tensor, routes: Tensor) -> Decision:
    """For queries (B,R,L,h,d) and routes (B,R,k)."""
    _, _, tokens, heads, _ = queries.shape
    if is_eager() and routes.shape[2] == 1 and heads * tokens**2 > scores_at_once():
        return 'portable', 'each region attends to one, which is too large for the cache'
    return _on_processors(queries, 'a few regions at a time stay in the cache')


RULES: dict[str, Callable[..., Decision]] = {
    'linear': _linear,
    'layer_norm': _layer_norm,
    'add_norm': lambda _: ('portable', "Triton's kernel has not run on a GPU yet"),
    'bias_gelu': lambda _: ('portable', "Triton's kernel has not run on a GPU yet"),
    'feed_forward': _feed_forward,
    'cross_covariance_attention': _cross_covariance,
    'bidirectional_attention': _bidirectional_attention,
    'self_attention': _self_attention,
    'bidirectional_self_attention': lambda _: ('portable', 'no matrix for each pair of tokens'),
    'window_attention': _window_attention,
    'bidirectional_window_attention': _window_attention,
    'routing_attention': _routing_attention,
}


# --- The machine ----------------------------------------------------------------------------------


# Whether a convolution by oneDNN is faster than the matrix product by MKL: mmbixt.ops.cpu.linear
# measures it when it is imported. Processes that train together need the same value for equal bits.
ONEDNN_IS_FASTER = False


@torch.compiler.assume_constant_result  # compilers cannot trace it
def threads() -> int:
    return torch.get_num_threads()


def scores_at_once() -> int:
    """Scores of attention (or other values) that all threads together keep in their caches."""
    return SCORES * threads()
