"""Whether the pickle of a checkpoint describes data and nothing else, found out beforehand.

torch's reader of pickles (``weights_only=True``) calls only functions that it knows, but it calls
them with whatever arguments the file has, and it knows more of them than checkpoints need. So a
small file can fill the memory (``bytearray(10**12)``), never end (the hash of nested tuples), give
tensors of memory that nobody has written, or use memory that is freed (a legacy file with a view of
a storage; torch 2.11). Therefore the pickle is first followed step by step without building
anything: the stack holds only descriptions of what would be there. What passes is what
``torch.save`` writes, and torch's reader then reads it.
"""

import math
import pickletools
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch

from mmbixt.checkpoints.errors import UnsafeCheckpointError, UnsupportedContentError


class MalformedError(ValueError):
    """No ``torch.save`` writes this: the file is damaged, or made to do damage."""


# torch.FloatStorage and so on; without the quantized ones
STORAGES = {
    'torch.storage.UntypedStorage': torch.uint8,
    'torch.DoubleStorage': torch.float64,
    'torch.FloatStorage': torch.float32,
    'torch.HalfStorage': torch.float16,
    'torch.BFloat16Storage': torch.bfloat16,
    'torch.LongStorage': torch.int64,
    'torch.IntStorage': torch.int32,
    'torch.ShortStorage': torch.int16,
    'torch.CharStorage': torch.int8,
    'torch.ByteStorage': torch.uint8,
    'torch.BoolStorage': torch.bool,
    'torch.ComplexDoubleStorage': torch.complex128,
    'torch.ComplexFloatStorage': torch.complex64,
}
DTYPES = {
    f'torch.{name}': dtype
    for name, dtype in vars(torch).items()
    if isinstance(dtype, torch.dtype) and str(dtype) == f'torch.{name}' and name[0] != 'q'
}
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
_DICTS = ('dict', 'collections.OrderedDict', 'collections.Counter')
_LARGEST_VIEW = 1 << 30  # bytes that a tensor of a small file may seem to have, being expanded
_MOST_UNUSUAL_KEYS = 1000  # whose hashes a file can choose to be equal: the time is quadratic
# opcodes of new objects, which torch.save writes with a place in the memo, as several bytes
_NEW = ('EMPTY_LIST', 'EMPTY_DICT', 'REDUCE', 'NEWOBJ')


@dataclass(eq=False, slots=True)
class Global:
    """A function or class that the file names."""

    name: str


@dataclass(eq=False, slots=True)
class Made:
    """What a call or an opcode would make.

    Args:
        kind: name of the class, or another word for it.
        size: in bytes, of a storage or of bytes.
        dtype: of a storage.
        keys: of a dict.
        is_flags: whether all values of a dict are bool.
        is_final: whether its content may not be changed any more.
    """

    kind: str
    size: int = 0
    dtype: torch.dtype = torch.uint8
    keys: list | tuple = ()
    is_flags: bool = True
    is_final: bool = False


def require(condition: bool, what: str) -> None:
    if not condition:
        raise MalformedError(what)


def support(condition: bool, what: str) -> None:
    if not condition:
        raise UnsupportedContentError(what)


def kind_of(value: Any) -> type | str:
    return value.kind if isinstance(value, Made) else type(value)


def is_usual_key(value: Any) -> bool:
    """Whether few others have the same hash, whatever the file chooses."""
    if type(value) is int:
        return abs(value) < 1 << 60
    return isinstance(value, str | float | bool | None) or kind_of(value) == 'bytes'


def is_key(value: Any, depth: int = 2) -> bool:
    """Whether its hash costs little."""
    if type(value) is tuple:
        return depth > 0 and len(value) <= 8 and all(is_key(part, depth - 1) for part in value)
    if isinstance(value, Global):
        return value.name in DTYPES
    return is_usual_key(value) or kind_of(value) in (int, 'complex', 'device', 'scalar', 'size')


def is_integers(value: Any) -> bool:
    is_short = type(value) is tuple and len(value) <= 64
    return is_short and all(type(n) is int and 0 <= n < 1 << 62 for n in value)


class Inspection:
    """Follows one pickle.

    Args:
        file: its bytes, or a file at its beginning.
        size: of the whole checkpoint, in bytes.
        storage_sizes: bytes of each storage in a zip archive; None where they follow the pickles.
    """

    def __init__(
        self, file: BinaryIO | bytes, size: int, storage_sizes: dict[str, int] | None = None
    ) -> None:
        self.file = file
        self.size = size
        self.storage_sizes = storage_sizes
        self.storages: dict[str, Made] = {}
        self.stack: list[Any] = []
        self.outer: list[list] = []  # the stacks below each mark
        self.memo: dict[int, Any] = {}
        self.copied = 0  # bytes
        self.unusual_keys = 0

    def run(self) -> Any:
        """Follow it to its end; returns what it would give."""
        for opcode, argument, _ in pickletools.genops(self.file):
            step = _STEPS.get(opcode.name)
            require(step is not None, f'the opcode {opcode.name}')
            self.copies(64 if opcode.name in _NEW else 0)
            step(self, argument)
        return self.pop(1)[0]

    def copies(self, size: int) -> None:
        """Data are used once by what is saved; a file that uses them often can fill the memory."""
        self.copied += size
        is_little = self.copied <= 16 * self.size + (1 << 20)
        require(is_little, 'the same data over and over, or too many objects')

    def check_keys(self, keys: list[Any]) -> None:
        for key in keys:
            if not is_usual_key(key):
                support(is_key(key), 'a key that is not simple, in a dict or set')
                self.unusual_keys += 1
        few = self.unusual_keys <= _MOST_UNUSUAL_KEYS
        support(few, f'more than {_MOST_UNUSUAL_KEYS} keys that are neither text nor numbers')

    def protocol(self, number: int) -> None:
        if number != 2:
            raise UnsafeCheckpointError(f'the pickle protocol {number} (torch.save uses 2)')

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self, count: int) -> list[Any]:
        require(len(self.stack) >= count, 'a pickle out of order')
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values

    def pop_mark(self) -> list[Any]:
        require(bool(self.outer), 'a pickle out of order')
        values, self.stack = self.stack, self.outer.pop()
        return values

    def mark(self, _: Any) -> None:
        self.outer.append(self.stack)
        self.stack = []

    def put(self, index: int) -> None:
        require(bool(self.stack), 'a pickle out of order')
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        require(index in self.memo, 'a pickle that refers to what it does not hold')
        self.push(self.memo[index])

    def name(self, argument: str) -> None:
        module, _, name = argument.partition(' ')
        module, name = NAME_MAPPING.get((module, name), (module, name))  # of Python 2
        module = IMPORT_MAPPING.get(module, module)
        if f'{module}.{name}' not in KNOWN:
            raise UnsafeCheckpointError(repr(f'{module}.{name}'[:80]))
        self.push(Global(f'{module}.{name}'))

    def append(self, values: list[Any]) -> None:
        require(bool(self.stack) and type(self.stack[-1]) is list, 'items for what is no list')
        self.stack[-1].extend(values)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1] if self.stack else None
        is_dict = isinstance(target, Made) and target.kind in _DICTS and not target.is_final
        require(is_dict and len(items) % 2 == 0, 'items for what is no dict')
        self.check_keys(items[::2])
        target.keys = target.keys or []
        target.keys += items[::2]
        target.is_flags = target.is_flags and all(type(value) is bool for value in items[1::2])

    def call(self, _: Any) -> None:
        function, arguments = self.pop(2)
        known = isinstance(function, Global) and function.name in CALLS
        require(known and type(arguments) is tuple, 'a call of what is no function')
        self.push(CALLS[function.name](self, *arguments))

    def new_object(self, _: Any) -> None:
        cls, arguments = self.pop(2)
        known = isinstance(cls, Global) and cls.name in (HISTORY_BUFFER, NAMESPACE)
        require(known and arguments == (), 'an object of an unexpected class')
        self.push(Made(cls.name))

    def set_state(self, _: Any) -> None:
        instance, state = self.pop(2)
        kind = kind_of(instance)
        require(kind in STATES, 'a state for what has none')
        require(not instance.is_final, f'a second state of {kind}')
        instance.is_final = True
        is_short = type(state) is tuple and len(state) <= 8
        form = tuple(map(kind_of, state)) if is_short else kind_of(state)
        is_right = form == STATES[kind] and (kind != 'array' or is_integers(state[1]))
        require(is_right, f'an unexpected state of {kind}')
        if form == 'dict':
            self.copies(8 * len(state.keys))
            require(all(type(name) is str for name in state.keys), 'a state without names')
            is_plain = kind != 'collections.OrderedDict' or set(state.keys) <= {'_metadata'}
            support(is_plain, 'an OrderedDict with attributes')
        else:
            self.copies(sum(part.size for part in state if isinstance(part, Made)))
        self.push(instance)

    def storage(self, _: Any) -> None:
        identity = self.pop(1)[0]
        require(type(identity) is tuple and len(identity) in (5, 6), 'an unknown reference')
        word, cls, key, location, count = identity[:5]
        require(
            word == 'storage'
            and isinstance(cls, Global)
            and cls.name in STORAGES
            and type(key) is type(location) is str
            and key.isascii()  # another name may be the same one to torch's reader of archives
            and type(count) is int
            and count >= 0
            # views of storages are of torch before 0.4: they keep memory that torch has freed,
            # if their storage is made larger
            and identity[5:] == (() if self.storage_sizes is not None else (None,)),
            'a storage that is not described as torch.save does',
        )
        require(location != 'meta', 'a storage without content')
        itemsize = STORAGES[cls.name].itemsize
        made = self.storages.setdefault(key, Made('storage', count * itemsize, STORAGES[cls.name]))
        require(made.size == count * itemsize, f'two sizes for storage {key[:20]!r}')
        if self.storage_sizes is not None:
            there = self.storage_sizes.get(key)
            require(there is not None, f'no storage {key[:20]!r}')
            require(there == made.size, f'{there} bytes in a storage that should have {made.size}')
        require(made.size <= self.size, 'a storage larger than the file')
        self.push(made)


def _ordered_dict(inspection: Inspection, pairs: Any = ()) -> Made:
    """Python 2 gives it a list of pairs."""
    require(type(pairs) is list or pairs == (), 'an OrderedDict of no list')
    require(all(type(pair) is list and len(pair) == 2 for pair in pairs), 'an OrderedDict')
    return Made('collections.OrderedDict', keys=_keys(inspection, [pair[0] for pair in pairs]))


def _counter(inspection: Inspection, counts: Any) -> Made:
    require(isinstance(counts, Made) and counts.kind == 'dict', 'a Counter of no dict')
    return Made('collections.Counter', keys=_keys(inspection, counts.keys))


def _set(inspection: Inspection, items: Any = ()) -> Made:
    require(type(items) is list or items == (), 'a set of no list')
    return Made('set', keys=_keys(inspection, items))


def _keys(inspection: Inspection, keys: Any) -> list[Any]:
    inspection.copies(8 * len(keys))
    inspection.check_keys(keys)
    return list(keys)


def _bytes(inspection: Inspection, content: Any = '', encoding: Any = 'latin1') -> Made:
    """bytes from a text, as an old protocol writes them, or a bytearray from bytes."""
    is_bytes = isinstance(content, Made) and content.kind == 'bytes'
    require(is_bytes or type(content) is str, 'bytes of something else')
    require(type(encoding) is str and encoding in ('latin1', 'latin-1'), 'an unknown encoding')
    size = content.size if is_bytes else len(content)
    inspection.copies(size)
    return Made('bytes', size=size)


def _complex(_: Inspection, real: Any, imaginary: Any) -> Made:
    require(type(real) is type(imaginary) is float, 'a complex number of other than numbers')
    return Made('complex')


def _size(_: Inspection, sizes: Any) -> Made:
    require(is_integers(sizes), 'a torch.Size of other than numbers')
    return Made('size')


def _device(_: Inspection, name: Any, index: Any = 0) -> Made:
    require(type(name) is str and type(index) is int, 'a device of no name')
    return Made('device')


def _attribute(_: Inspection, owner: Any, name: Any) -> Made:
    of = owner.name if isinstance(owner, Global) else 'an object'
    if type(name) is not str or name not in ATTRIBUTES.get(of, ()):
        raise UnsafeCheckpointError(f'the attribute {str(name)[:40]!r} of {of}')
    return Made('attribute')


def _array(_: Inspection, cls: Any, shape: Any, code: Any) -> Made:
    is_ndarray = isinstance(cls, Global) and cls.name == 'numpy.ndarray'
    require(is_ndarray and is_integers(shape), 'an array of another class')
    return Made('array')


def _numpy_dtype(_: Inspection, code: Any, align: Any = False, copy: Any = True) -> Made:
    require(type(code) is str, 'a dtype without a name')
    if code[:1] not in tuple('biufc') or code[1:] not in ('1', '2', '4', '8', '16'):
        raise UnsafeCheckpointError(f'numpy data of the type {code[:20]!r}, not numbers')
    return Made('dtype')


def _scalar(_: Inspection, dtype: Any, content: Any) -> Made:
    is_number = kind_of(dtype) == 'dtype' and kind_of(content) == 'bytes'
    require(is_number, 'a numpy scalar without a dtype or content')
    return Made('scalar')


def _tensor(
    inspection: Inspection,
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any = False,
    hooks: Any = None,
    metadata: Any = None,
    dtype: torch.dtype | None = None,
) -> Made:
    """A tensor that stays within its storage; beyond it torch would make the storage larger."""
    require(isinstance(storage, Made) and storage.kind == 'storage', 'a tensor without a storage')
    require(is_integers((offset,)) and is_integers(size) and is_integers(stride), 'no sizes')
    require(len(size) == len(stride) and type(requires_grad) is bool, 'no sizes')
    dtype = dtype or storage.dtype
    reach = [(n - 1) * step for n, step in zip(size, stride, strict=True)]
    end = offset + (1 + sum(reach) if all(size) else 0)
    require(end * dtype.itemsize <= storage.size, 'a tensor that looks beyond its storage')
    expanded = math.prod(size) * dtype.itemsize
    support(expanded <= max(inspection.size, _LARGEST_VIEW), 'a tensor expanded beyond 1 GiB')
    if metadata is not None:
        is_dict = kind_of(metadata) == 'dict' and metadata.is_flags and len(metadata.keys) <= 2
        allowed = {'neg', 'conj'} if dtype.is_complex else {'neg'}
        require(is_dict and allowed.issuperset(metadata.keys), 'a tensor with flags')
    _take_hooks(hooks)
    return Made('tensor')


def _tensor_v3(inspection: Inspection, *arguments: Any) -> Made:
    """A tensor of a dtype that has no storage class: float8, uint16."""
    *arguments, dtype = arguments
    require(len(arguments) == 6, 'a tensor without a dtype')
    require(isinstance(dtype, Global) and dtype.name in DTYPES, 'a tensor without a dtype')
    return _tensor(inspection, *arguments, dtype=DTYPES[dtype.name])


def _parameter(_: Inspection, tensor: Any, requires_grad: Any, hooks: Any) -> Made:
    require(isinstance(tensor, Made) and tensor.kind == 'tensor', 'a parameter of no tensor')
    require(type(requires_grad) is bool, 'a parameter of no tensor')
    _take_hooks(hooks)
    return Made('tensor')


def _is_empty(value: Any, kind: str) -> bool:
    return isinstance(value, Made) and value.kind == kind and not value.keys


def _take_hooks(hooks: Any) -> None:
    """Functions to be called in the backward pass: there must be none, nor come later."""
    if hooks is not None:
        require(_is_empty(hooks, 'collections.OrderedDict'), 'a tensor with hooks')
        hooks.is_final = True


# what may be called -> its check, whose signature is that of the call
CALLS: dict[str, Callable[..., Made]] = {
    'collections.OrderedDict': _ordered_dict,
    'collections.Counter': _counter,
    'builtins.set': _set,
    'builtins.frozenset': _set,
    'builtins.complex': _complex,
    'builtins.bytes': lambda _: Made('bytes'),  # how b'' is written in an old protocol
    'builtins.bytearray': _bytes,
    'builtins.getattr': _attribute,
    '_codecs.encode': _bytes,  # how other bytes are written
    'numpy.dtype': _numpy_dtype,
    'torch.Size': _size,
    'torch.device': _device,
    'torch._utils._rebuild_tensor': _tensor,
    'torch._utils._rebuild_tensor_v2': _tensor,
    'torch._utils._rebuild_tensor_v3': _tensor_v3,
    'torch._utils._rebuild_parameter': _parameter,
    **{f'{module}._reconstruct': _array for module in NUMPY},
    **{f'{module}.scalar': _scalar for module in NUMPY},
}
KNOWN = {*CALLS, *STORAGES, *DTYPES, HISTORY_BUFFER, ONE_CYCLE, NAMESPACE, 'numpy.ndarray'}


def _pushes(value: Any) -> Callable[[Inspection, Any], None]:
    return lambda inspection, _: inspection.push(value)


def _argument(inspection: Inspection, argument: Any) -> None:
    inspection.push(argument)


# the opcodes that torch's reader knows, and one that it does not
_STEPS: dict[str, Callable[[Inspection, Any], None]] = {
    'PROTO': Inspection.protocol,
    'STOP': lambda _, __: None,
    'GLOBAL': Inspection.name,
    'REDUCE': Inspection.call,
    'NEWOBJ': Inspection.new_object,
    'BUILD': Inspection.set_state,
    'BINPERSID': Inspection.storage,
    'MARK': Inspection.mark,
    'BINGET': Inspection.get,
    'LONG_BINGET': Inspection.get,
    'BINPUT': Inspection.put,
    'LONG_BINPUT': Inspection.put,
    'APPEND': lambda inspection, _: inspection.append(inspection.pop(1)),
    'APPENDS': lambda inspection, _: inspection.append(inspection.pop_mark()),
    'SETITEM': lambda inspection, _: inspection.set_items(inspection.pop(2)),
    'SETITEMS': lambda inspection, _: inspection.set_items(inspection.pop_mark()),
    'EMPTY_TUPLE': _pushes(()),
    'EMPTY_LIST': lambda inspection, _: inspection.push([]),
    'EMPTY_DICT': lambda inspection, _: inspection.push(Made('dict')),
    'TUPLE': lambda inspection, _: inspection.push(tuple(inspection.pop_mark())),
    'TUPLE1': lambda inspection, _: inspection.push(tuple(inspection.pop(1))),
    'TUPLE2': lambda inspection, _: inspection.push(tuple(inspection.pop(2))),
    'TUPLE3': lambda inspection, _: inspection.push(tuple(inspection.pop(3))),
    'NONE': _pushes(None),
    'NEWTRUE': _pushes(True),
    'NEWFALSE': _pushes(False),
    **dict.fromkeys(('BININT', 'BININT1', 'BININT2', 'LONG1', 'BINFLOAT'), _argument),
    'BINUNICODE': _argument,
    # of Python 2: pickletools reads it as latin-1, torch as utf-8
    'SHORT_BINSTRING': lambda inspection, text: inspection.push(text.encode('latin1').decode()),
    'LONG4': lambda _, __: support(False, 'an integer of more than 255 bytes'),
}
