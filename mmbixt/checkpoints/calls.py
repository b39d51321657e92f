"""What the pickle of a checkpoint may call, and with which arguments.

Each check has the signature of the call. It describes what the call would make, and makes nothing.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from mmbixt.checkpoints.errors import UnsafeCheckpointError, UnsupportedContentError


class MalformedError(ValueError):
    """No ``torch.save`` writes this: the file is damaged, or made to do damage."""


HISTORY_BUFFER = 'mmengine.logging.history_buffer.HistoryBuffer'
ONE_CYCLE = 'mmengine.optim.scheduler.param_scheduler.OneCycleParamScheduler'
ATTRIBUTES = {  # class -> those of its functions that its own state names
    HISTORY_BUFFER: ('min', 'max', 'current', 'mean'),
    ONE_CYCLE: ('_annealing_cos', '_annealing_linear'),
}
NAMESPACE = 'argparse.Namespace'
NUMPY = ('numpy.core.multiarray', 'numpy._core.multiarray')  # of numpy 1 and 2
# kinds of objects that have a state -> the types or kinds of its parts
STATES = {
    'array': (int, tuple, 'dtype', bool, 'bytes'),
    'dtype': (int, str, *[type(None)] * 3, int, int, int),
    **dict.fromkeys((HISTORY_BUFFER, NAMESPACE, 'collections.OrderedDict'), 'dict'),
}
_LARGEST_VIEW = 1 << 30  # bytes that a tensor of a small file may seem to have, being expanded


@dataclass(eq=False, slots=True)
class Global:
    """A function or class that the file names."""

    name: str


@dataclass(eq=False, slots=True)
class Made:
    """What a call or an opcode would make."""

    kind: str  # name of the class, or another word for it
    size: int = 0  # in bytes, of a storage or of bytes
    dtype: torch.dtype = torch.uint8  # of a storage
    location: str = ''  # device of a storage
    items: list | tuple = ()  # keys and values of a dict, in turn
    is_final: bool = False  # its content may not be changed any more


def require(condition: bool, what: str) -> None:
    if not condition:
        raise MalformedError(what)


def support(condition: bool, what: str) -> None:
    if not condition:
        raise UnsupportedContentError(what)


def kind_of(value: Any) -> type | str:
    return value.kind if isinstance(value, Made) else type(value)


_OF_A_TENSOR = 384  # bytes of memory, beside its content


class Limits:
    """How much a file of so many bytes may make."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0  # bytes
        self.number_keys = 0  # among the keys of dicts and sets, that can be chosen to collide

    def use(self, size: int) -> None:
        """Data are used once by what is saved; a file that uses them often can fill the memory."""
        self.used += size
        is_little = self.used <= 16 * self.size + (1 << 20)
        require(is_little, 'the same data over and over, or too many objects')


def check_keys(limits: Limits, keys: list[Any] | tuple, count: int) -> None:
    """Keys of a dict or set: of kinds whose hashes cost little, and cannot be made to collide.

    Python hashes text with a secret of the process, but numbers as they are: who chooses them can
    make each look-up pass all that came before. Only numbers below the size of the table (``count``
    keys with the new ones) cannot: those of lists of parameters. Of others few are allowed.
    """
    for key in keys:
        is_number = isinstance(key, int | float)
        is_simple = isinstance(key, str | None) or kind_of(key) == 'bytes'
        support(is_simple or is_number, 'a key that is neither text nor a number, in a dict or set')
        limits.number_keys += is_number and not (type(key) is int and 0 <= key < count + 4096)
    support(limits.number_keys <= 10_000, 'more than 10,000 numbers as keys that are in no order')


def _is_sizes(value: Any) -> bool:
    is_short = type(value) is tuple and len(value) <= 64
    return is_short and all(type(n) is int and 0 <= n < 1 << 62 for n in value)


def check_state(limits: Limits, instance: Any, state: Any) -> None:
    """What an object gets after it is made; once, so that nothing changes that is in use."""
    kind = kind_of(instance)
    require(kind in STATES, 'a state for what has none')
    require(not instance.is_final, f'a second state of {kind}')
    instance.is_final = True
    is_short = type(state) is tuple and len(state) <= 8
    form = tuple(map(kind_of, state)) if is_short else kind_of(state)
    is_right = form == STATES[kind] and (kind != 'array' or _is_sizes(state[1]))
    require(is_right, f'an unexpected state of {kind}')
    if form == 'dict':
        names = state.items[::2]
        limits.use(64 * len(names))
        require(all(type(name) is str for name in names), 'a state without names')
        is_plain = kind != 'collections.OrderedDict' or set(names) <= {'_metadata'}
        support(is_plain, 'an OrderedDict with attributes')
    else:
        limits.use(sum(part.size for part in state if isinstance(part, Made)))


def _simple(kind: str, *forms: tuple[type | str, ...]) -> Callable[..., Made]:
    """The check of a call whose arguments only have to be of the right types or kinds."""

    def check(_: Limits, *arguments: Any) -> Made:
        require(tuple(map(kind_of, arguments)) in forms, f'a {kind} of something else')
        return Made(kind)

    return check


def _counter(limits: Limits, counts: Any) -> Made:
    require(kind_of(counts) == 'dict', 'a Counter of no dict')
    _use_copy(limits, counts.items[::2])
    return Made('collections.Counter')


def _set(limits: Limits, items: Any = ()) -> Made:
    require(type(items) is list or items == (), 'a set of no list')
    _use_copy(limits, items)
    return Made('set')


def _use_copy(limits: Limits, keys: Any) -> None:
    limits.use(32 * len(keys))
    check_keys(limits, keys, len(keys))


def _encode(limits: Limits, content: Any, encoding: Any) -> Made:
    """How bytes are written in an old protocol."""
    require(type(content) is str, 'bytes of something else')
    require(type(encoding) is str and encoding in ('latin1', 'latin-1'), 'an unknown encoding')
    limits.use(len(content))
    return Made('bytes', size=len(content))


def _size(_: Limits, sizes: Any) -> Made:
    require(_is_sizes(sizes), 'a torch.Size of other than numbers')
    return Made('size')


def is_device(name: Any) -> bool:
    """Of a device's number torch keeps 8 bits."""
    return type(name) is str and re.fullmatch(r'[a-z]+(:\d{1,2})?', name) is not None


def _device(limits: Limits, kind: Any, index: Any = 0) -> Made:
    limits.use(64)
    is_right = is_device(kind) and type(index) is int and 0 <= index < 100
    require(is_right, 'an unknown device')
    return Made('device')


def _attribute(_: Limits, owner: Any, name: Any) -> Made:
    of = owner.name if isinstance(owner, Global) else 'an object'
    if type(name) is not str or name not in ATTRIBUTES.get(of, ()):
        raise UnsafeCheckpointError(f'the attribute {str(name)[:40]!r} of {of}')
    return Made('attribute')


def _array(_: Limits, cls: Any, shape: Any, code: Any) -> Made:
    """Our reader uses none of the arguments: class, shape and content come with the state."""
    return Made('array')


def _numpy_dtype(limits: Limits, code: Any, align: Any = False, copy: Any = True) -> Made:
    limits.use(192)
    require(type(code) is str, 'a dtype without a name')
    if code[:1] not in tuple('biufc') or code[1:] not in ('1', '2', '4', '8', '16'):
        raise UnsafeCheckpointError(f'numpy data of the type {code[:20]!r}, not numbers')
    return Made('dtype')


def _tensor(
    limits: Limits,
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any = False,
    hooks: Any = None,
    metadata: Any = None,
) -> Made:
    """A tensor that stays within its storage; beyond it torch would make the storage larger."""
    require(kind_of(storage) == 'storage', 'a tensor without a storage')
    is_right = _is_sizes((offset,)) and _is_sizes(size) and _is_sizes(stride)
    require(is_right and len(size) == len(stride), 'a tensor without sizes')
    reach = [(n - 1) * step for n, step in zip(size, stride, strict=True)]
    end = offset + (1 + sum(reach) if all(size) else 0)
    require(end * storage.dtype.itemsize <= storage.size, 'a tensor that looks beyond its storage')
    expanded = math.prod(size) * storage.dtype.itemsize
    support(expanded <= max(limits.size, _LARGEST_VIEW), 'a tensor expanded beyond 1 GiB')
    support(metadata is None, 'a tensor that is a conjugated or negated view of another')
    return _parameter(limits, Made('tensor'), requires_grad, hooks)


def _parameter(limits: Limits, tensor: Any, requires_grad: Any, hooks: Any) -> Made:
    """Hooks are called in the backward pass: there must be none, nor come later."""
    limits.use(_OF_A_TENSOR)
    is_tensor = kind_of(tensor) == 'tensor' and type(requires_grad) is bool
    require(is_tensor, 'a parameter of no tensor')
    if hooks is not None:
        is_empty = kind_of(hooks) == 'collections.OrderedDict' and not hooks.items
        require(is_empty and not hooks.is_final, 'a tensor with hooks')  # or with another's
        hooks.is_final = True
    return Made('tensor')


CALLS: dict[str, Callable[..., Made]] = {
    'collections.OrderedDict': _simple('collections.OrderedDict', ()),
    'collections.Counter': _counter,
    'builtins.set': _set,
    'builtins.frozenset': _set,
    'builtins.complex': _simple('complex', (float, float)),
    'builtins.bytes': _simple('bytes', ()),  # how b'' is written in an old protocol
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
# classes of which the pickle may make an object without arguments
CLASSES = (HISTORY_BUFFER, NAMESPACE)
