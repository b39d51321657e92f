"""The work of a GPU for a network: operators are counted on tensors without data.

Rules: each operator is one kernel that reads each input and writes each result once. Views and
empty tensors are free. An expanded dimension is read once; of a table only the gathered rows are
read. Fused attention reads queries, keys, values and mask, and writes its result and one number for
each query and head; its backward pass is one kernel, too.
"""

import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten
FREE = {
    aten._unsafe_view,
    aten.empty,
    aten.empty_like,
    aten.empty_permuted,
    aten.empty_strided,
    aten.new_empty,
    aten.new_empty_strided,
}
# operators that do not read their first argument
OVERWRITES = {
    aten.bernoulli_,
    aten.copy_,
    aten.fill_,
    aten.full_like,
    aten.new_full,
    aten.new_ones,
    aten.new_zeros,
    aten.ones_like,
    aten.zero_,
    aten.zeros_like,
}
FETCHES = {aten.embedding, aten.gather, aten.index, aten.index_select}
# operators that change as many rows of their first argument as the last one has
TOUCHES = {aten.index_add_, aten.index_copy_, aten.index_put_, aten.scatter_, aten.scatter_add_}
GRADIENTS = '(gradients of weights)'


class Kernel(NamedTuple):
    """One operator: its name, its module, bytes and multiply-adds."""

    kind: str
    module: str
    bytes: int
    macs: int


class Cost(NamedTuple):
    """All kernels of a pass, and the peak memory in bytes without the weights."""

    kernels: list[Kernel]
    peak: int

    @property
    def bytes(self) -> int:
        return sum(kernel.bytes for kernel in self.kernels)

    @property
    def macs(self) -> int:
        return sum(kernel.macs for kernel in self.kernels)

    def by(self, key: Callable[[Kernel], str]) -> dict[str, tuple[int, int, int]]:
        """Number of kernels, bytes and multiply-adds of each group; most bytes first."""
        sums: dict[str, tuple[int, int, int]] = {}
        for kernel in self.kernels:
            number, moved, macs = sums.get(key(kernel), (0, 0, 0))
            sums[key(kernel)] = number + 1, moved + kernel.bytes, macs + kernel.macs
        return dict(sorted(sums.items(), key=lambda item: item[1][1], reverse=True))


def count(model: nn.Module, *inputs: Tensor, train: bool) -> Cost:
    """Count a forward pass, and with ``train`` a backward pass, in the current mode of the model.

    Model and inputs are on the meta device. Creating the gradients of the outputs is not counted.
    """
    modules, counter = _Modules(model), _Counter()
    counter.modules = modules
    inside = mock.patch('mmbixt.ops.cpu.operator._runs_as_called', return_value=True)
    with inside, torch.set_grad_enabled(train), modules.followed(), _FusedAttention(), counter:
        results = [x for x in tree_leaves(model(*inputs)) if isinstance(x, Tensor)]
        if train:
            wanted = [x for x in results if x.requires_grad]
            torch.autograd.backward(wanted, [torch.empty_like(x) for x in wanted])
    return Cost(counter.kernels, counter.peak)


class _Modules:
    """The module of each operator; in the backward pass, the module of its forward operator.

    Without hooks, because modules with hooks do not use fast paths. Autograd numbers its nodes in
    the order of creation, so the numbers at the start and end of modules give the module of a node.
    """

    def __init__(self, model: nn.Module) -> None:
        self.names = {module: name for name, module in model.named_modules()}
        self.stack = ['']
        self.numbers, self.owners = [0], ['']

    @contextmanager
    def followed(self) -> Iterator[None]:
        call = nn.Module.__call__

        def follow(module: nn.Module, *args: Any, **options: Any) -> Any:
            self.stack.append(self.names.get(module, self.stack[-1]))
            self._record()
            try:
                return call(module, *args, **options)
            finally:
                self.stack.pop()
                self._record()

        with mock.patch.object(nn.Module, '__call__', follow):
            yield

    def _record(self) -> None:
        self.numbers.append(torch.autograd._get_sequence_nr())
        self.owners.append(self.stack[-1])

    def current(self) -> str:
        node = torch._C._current_autograd_node()
        if node is None:
            return self.stack[-1]
        if node.name().endswith('AccumulateGrad'):
            return GRADIENTS
        return self.owners[bisect_right(self.numbers, node._sequence_nr()) - 1]


class _Counter(TorchDispatchMode):
    modules: _Modules

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[Kernel] = []
        self.live = self.peak = 0
        self.storages: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func is aten.convolution.default and _is_channels_last(args[0]):  # as on a GPU
            out = torch.empty_like(out, memory_format=torch.channels_last)
        results = _tensors(out)
        if func.is_view or func.namespace == 'prim':
            return out
        for result in results:
            self._track(result)
        packet = func.overloadpacket
        if packet not in FREE and any(x.numel() for x in results):
            macs = _macs(packet, args, kwargs, out)
            moved = _bytes_moved(packet, args, kwargs, results)
            self.kernels.append(Kernel(packet.__name__, self.modules.current(), moved, macs))
        return out

    def _track(self, x: Tensor) -> None:
        """Count the memory of a tensor until torch releases it."""
        storage = x.untyped_storage()
        if id(storage) in self.storages:
            return
        self.storages[id(storage)] = storage.nbytes()
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._release, id(storage))

    def _release(self, storage: int) -> None:
        self.live -= self.storages.pop(storage)


def _is_channels_last(x: Tensor) -> bool:
    return x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)


def _macs(packet: Any, args: tuple, kwargs: dict, out: Any) -> int:
    if packet is aten.convolution_backward:  # torch's formula (2.11) ignores the groups
        grad, x, weight, *_, is_transposed, _, _, wanted = args
        cells = x if is_transposed else grad
        return len(grad) * prod(cells.shape[2:]) * weight.numel() * sum(wanted[:2])
    formula = flop_registry.get(packet)
    return formula(*args, **kwargs, out_val=out) // 2 if formula else 0


def _bytes_moved(packet: Any, args: tuple, kwargs: dict, results: list[Tensor]) -> int:
    inputs = _tensors([args, {k: v for k, v in kwargs.items() if k != 'out'}])
    written = sum(map(_bytes, {id(x): x for x in results}.values()))
    if packet is aten.index_fill_:
        x, dim, index = args[:3]
        return _bytes(index) + len(index) * _bytes(x) // x.shape[dim]
    if packet in FETCHES:
        return written + min(written, _bytes(inputs[0])) + sum(map(_bytes, inputs[1:]))
    if packet in TOUCHES:
        source = max(map(_bytes, inputs[1:]))
        adds = packet not in (aten.index_copy_, aten.scatter_)
        return sum(map(_bytes, inputs[1:])) + (1 + adds) * min(written, source)
    if packet in OVERWRITES:
        inputs = inputs[1:]
    return written + sum(map(_bytes, inputs))


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def _bytes(x: Tensor) -> int:
    """Bytes in memory; an expanded dimension counts once."""
    sizes = zip(x.shape, x.stride(), strict=True)
    return x.element_size() * prod(size for size, stride in sizes if stride or not size)


class _FusedAttention(TorchFunctionMode):
    """Use the fused attention kernel of GPUs; for tensors without data torch uses none."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None):
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention and args[0].dim() == 4:
            return _attend(*args, **kwargs)
        return func(*args, **kwargs)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, *others: Any, **options: Any
) -> Tensor:
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = q.new_zeros(()).where(attn_mask, -torch.inf)
        if any(stride % 8 for stride in attn_mask.stride()[:-1]):  # as torch does for its kernel
            length = attn_mask.shape[-1]
            attn_mask = functional.pad(attn_mask, (0, -length % 8))[..., :length]
        attn_mask = attn_mask.expand(*q.shape[:-1], k.shape[-2])
    train = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    op = aten._scaled_dot_product_efficient_attention
    return op(q, k, v, attn_mask, train, *others, **options)[0]
