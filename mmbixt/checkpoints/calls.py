"""The functions that the pickle of a checkpoint may call, and their allowed arguments.

Each check has the signature of the function after ``limits``. It returns a description of the
object that the call would create, and creates nothing.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from mmbixt.checkpoints.errors import UnsafeCheckpointError, UnsupportedContentError


class MalformedError(ValueError):
    """``torch.save`` does not write such a file: it is damaged or malicious."""


HISTORY_BUFFER = 'mmengine.logging.history_buffer.HistoryBuffer'
ONE_CYCLE = 'mmengine.optim.scheduler.param_scheduler.OneCycleParamScheduler'
ATTRIBUTES = {  # class -> its functions that a saved state may name
    HISTORY_BUFFER: ('min', 'max', 'current', 'mean'),
    ONE_CYCLE: ('_annealing_cos', '_annealing_linear'),
}
NAMESPACE = 'argparse.Namespace'
NUMPY = ('numpy.core.multiarray', 'numpy._core.multiarray')  # of numpy 1 and 2
# kinds of objects with a state -> the types or kinds of its items
STATES = {
    'array': (int, tuple, 'dtype', bool, 'bytes'),
    'dtype': (int, str, *[type(None)] * 3, int, int, int),
    **dict.fromkeys((HISTORY_BUFFER, NAMESPACE, 'collections.OrderedDict'), 'dict'),
}
_LARGEST_VIEW = 1 << 30  # bytes of an expanded tensor; its storage is smaller
_TENSOR_BYTES = 384  # memory of a tensor without its storage


@dataclass(eq=False, slots=True)
class Global:
    """A function or class, by its name in the file."""

    name: str


@dataclass(eq=False, slots=True)
class Description:
    """Description of an object that a call or an opcode would create."""

    kind: str  # the class, or a short name for it
    size: int = 0  # in bytes, of a storage or of bytes
    dtype: torch.dtype = torch.uint8  # of a storage
    location: str = ''  # device of a storage
    items: list | tuple = ()  # of a dict: key, value, key, value ...
    is_final: bool = False  # its content must not change any more


def require(condition: bool, what: str) -> None:
    if not condition:
        raise MalformedError(what)


def support(condition: bool, what: str) -> None:
    if not condition:
        raise UnsupportedContentError(what)


def kind_of(value: Any) -> type | str:
    return value.kind if isinstance(value, Description) else type(value)


class Limits:
    """Limits of the memory and of the hash collisions that a file of ``size`` bytes may cause."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0  # bytes
        self.number_keys = 0  # keys of dicts and sets that could be chosen to collide

    def use(self, size: int) -> None:
        """Count memory. A pickle can refer to the same data many times and so fill the memory."""
        self.used += size
        is_small = self.used <= 16 * self.size + (1 << 20)
        require(is_small, 'the same data many times, or too many objects')


def check_keys(limits: Limits, keys: list[Any] | tuple, count: int) -> None:
    """Check keys of a dict or set: their hashes must be fast, and must not collide on purpose.

    Python hashes text with a random secret, but a number is its own hash: a file can choose numbers
    that all collide, and each look-up then takes time in proportion to their count. Numbers below
    the size of the table (``count`` keys, such as the indices of parameters) cannot collide; only
    few others are allowed.
    """
    for key in keys:
        is_number = isinstance(key, int | float)
        is_simple = isinstance(key, str | None) or kind_of(key) == 'bytes'
        support(is_simple or is_number, 'a key that is neither text nor a number, in a dict or set')
        limits.number_keys += is_number and not (type(key) is int and 0 <= key < count + 4096)
    support(limits.number_keys <= 10_000, 'more than 10,000 unordered numbers as keys')


def _is_sizes(value: Any) -> bool:
    is_short = type(value) is tuple and len(value) <= 64
    return is_short and all(type(n) is int and 0 <= n < 1 << 62 for n in value)


def check_state(limits: Limits, instance: Any, state: Any) -> None:
    """Check the state that an object gets; only once, because the object may be in use already."""
    kind = kind_of(instance)
    require(kind in STATES, 'a state for an object without one')
    require(not instance.is_final, f'a second state of {kind}')
    instance.is_final = True
    is_short = type(state) is tuple and len(state) <= 8
    form = tuple(map(kind_of, state)) if is_short else kind_of(state)
    is_valid = form == STATES[kind] and (kind != 'array' or _is_sizes(state[1]))
    require(is_valid, f'an unexpected state of {kind}')
    if form == 'dict':
        names = state.items[::2]
        limits.use(64 * len(names))
        require(all(type(name) is str for name in names), 'a state without names')
        is_plain = kind != 'collections.OrderedDict' or set(names) <= {'_metadata'}
        support(is_plain, 'an OrderedDict with attributes')
    else:
        limits.use(sum(part.size for part in state if isinstance(part, Description)))


def _simple(kind: str, *forms: tuple[type | str, ...]) -> Callable[..., Description]:
    """A check that compares only the types or kinds of the arguments with ``forms``."""

    def check(_: Limits, *arguments: Any) -> Description:
        require(tuple(map(kind_of, arguments)) in forms, f'a {kind} with wrong arguments')
        return Description(kind)

    return check


def _counter(limits: Limits, counts: Any) -> Description:
    require(kind_of(counts) == 'dict', 'a Counter that is not made from a dict')
    _use_copy(limits, counts.items[::2])
    return Description('collections.Counter')


def _set(limits: Limits, items: Any = ()) -> Description:
    require(type(items) is list or items == (), 'a set that is not made from a list')
    _use_copy(limits, items)
    return Description('set')


def _use_copy(limits: Limits, keys: Any) -> None:
    limits.use(32 * len(keys))
    check_keys(limits, keys, len(keys))


def _encode(limits: Limits, content: Any, encoding: Any) -> Description:
    """Protocol 2 stores bytes as encoded text."""
    require(type(content) is str, 'bytes that are not made from text')
    require(type(encoding) is str and encoding in ('latin1', 'latin-1'), 'an unknown encoding')
    limits.use(len(content))
    return Description('bytes', size=len(content))


def _size(_: Limits, sizes: Any) -> Description:
    require(_is_sizes(sizes), 'a torch.Size that is not made from integers')
    return Description('size')


def is_device(name: Any) -> bool:
    """Whether torch knows such a device; it stores only 8 bits of the index."""
    return type(name) is str and re.fullmatch(r'[a-z]+(:\d{1,2})?', name) is not None


def _device(limits: Limits, kind: Any, index: Any = 0) -> Description:
    limits.use(64)
    is_valid = is_device(kind) and type(index) is int and 0 <= index < 100
    require(is_valid, 'an unknown device')
    return Description('device')


def _attribute(_: Limits, owner: Any, name: Any) -> Description:
    owner = owner.name if isinstance(owner, Global) else 'an object'
    if type(name) is not str or name not in ATTRIBUTES.get(owner, ()):
        raise UnsafeCheckpointError(f'the attribute {str(name)[:40]!r} of {owner}')
    return Description('attribute')


def _array(_: Limits, cls: Any, shape: Any, code: Any) -> Description:
    """Our reader ignores the arguments: dtype, shape and content are in the state."""
    return Description('array')


def _numpy_dtype(limits: Limits, code: Any, align: Any = False, copy: Any = True) -> Description:
    limits.use(192)
    require(type(code) is str, 'a dtype without a name')
    if code[:1] not in tuple('biufc') or code[1:] not in ('1', '2', '4', '8', '16'):
        raise UnsafeCheckpointError(f'numpy data of type {code[:20]!r}, which are not numbers')
    return Description('dtype')


def _tensor(
    limits: Limits,
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any = False,
    hooks: Any = None,
    metadata: Any = None,
) -> Description:
    """A tensor must not exceed its storage: torch would enlarge the storage.

    Its last element is at offset + sum((size_i - 1) stride_i).
    """
    require(kind_of(storage) == 'storage', 'a tensor without a storage')
    is_valid = _is_sizes((offset,)) and _is_sizes(size) and _is_sizes(stride)
    require(is_valid and len(size) == len(stride), 'a tensor without sizes')
    steps = [(n - 1) * step for n, step in zip(size, stride, strict=True)]
    end = offset + (1 + sum(steps) if all(size) else 0)
    require(end * storage.dtype.itemsize <= storage.size, 'a tensor that exceeds its storage')
    expanded = math.prod(size) * storage.dtype.itemsize
    support(expanded <= max(limits.size, _LARGEST_VIEW), 'a tensor expanded beyond 1 GiB')
    support(metadata is None, 'a tensor that is a conjugated or negated view of another')
    return _parameter(limits, Description('tensor'), requires_grad, hooks)


def _parameter(limits: Limits, tensor: Any, requires_grad: Any, hooks: Any) -> Description:
    """Hooks are called in the backward pass: the dict must be empty, and remain empty."""
    limits.use(_TENSOR_BYTES)
    is_tensor = kind_of(tensor) == 'tensor' and type(requires_grad) is bool
    require(is_tensor, 'a parameter that is not a tensor')
    if hooks is not None:
        is_empty = kind_of(hooks) == 'collections.OrderedDict' and not hooks.items
        require(is_empty and not hooks.is_final, 'a tensor with hooks')
        hooks.is_final = True
    return Description('tensor')


CALLS: dict[str, Callable[..., Description]] = {
    'collections.OrderedDict': _simple('collections.OrderedDict', ()),
    'collections.Counter': _counter,
    'builtins.set': _set,
    'builtins.frozenset': _set,
    'builtins.complex': _simple('complex', (float, float)),
    'builtins.bytes': _simple('bytes', ()),  # b'' in protocol 2
    'builtins.getattr': _attribute,
    '_codecs.encode': _encode,
    'numpy.dtype': _numpy_dtype,
    'torch.Size': _size,
    'torch.device': _device,
    'torch._utils._rebuild_tensor': _tensor,
    'torch._utils._rebuild_tensor_v2': _tensor,
    'torch._utils._rebuild_parameter': _parameter,
    **{f'{module}._reconstruct': _array for module in NUMPY},
    **{f'{module}.scalar': _simple('scalar', ('dtype', 'bytes')) for module in NUMPY},
}
# classes that the pickle may instantiate without arguments
CLASSES = (HISTORY_BUFFER, NAMESPACE)
