"""Check that the pickle of a checkpoint describes only data, before torch reads it.

torch's safe unpickler (``weights_only=True``) calls only functions of a list, but with any
arguments, and its list is longer than checkpoints need. A small file can fill the memory
(``bytearray(10**12)``), run forever (the hash of nested tuples), create tensors from uninitialised
memory, or use freed memory (a legacy file with a view of a storage; torch 2.11). Therefore
:class:`Inspection` first executes the opcodes of the pickle, like Python's unpickler, on which
torch's is based, but its stack holds only descriptions of objects. It accepts what ``torch.save``
writes; torch's unpickler then reads the file.
"""

import pickle
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable
from typing import Any, BinaryIO

import torch

from mmbixt.checkpoints.calls import (
    CALLS,
    CLASSES,
    ONE_CYCLE,
    Description,
    Global,
    Limits,
    check_keys,
    check_state,
    is_device,
    kind_of,
    require,
)
from mmbixt.checkpoints.errors import UnsafeCheckpointError

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
_DTYPES = {str(value) for value in vars(torch).values() if isinstance(value, torch.dtype)}
_DTYPES = {name for name in _DTYPES if not name.startswith('torch.q')}  # quantized
KNOWN = {*CALLS, *CLASSES, *STORAGES, *_DTYPES, ONE_CYCLE, 'numpy.ndarray'}
_DICTS = ('dict', 'collections.OrderedDict', 'collections.Counter')
# opcodes of a few bytes that put a new object of 64 bytes on the stack
_NEW = (
    *(pickle.MARK, pickle.EMPTY_LIST, pickle.EMPTY_DICT, pickle.REDUCE, pickle.NEWOBJ),
    *(pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
)


class _ExactFile:
    """A file whose reads return all bytes or fail, and allocate no more than the file has."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.size = file, size

    def read(self, count: int) -> bytes:
        content = self.file.read(min(count, self.size))
        require(len(content) == count, 'the pickle ends early')
        return content

    def readline(self) -> bytes:
        line = self.file.readline()
        require(line.endswith(b'\n'), 'the pickle ends early')
        return line


class Inspection(pickle._Unpickler):
    """Executes the opcodes of one pickle; :meth:`load` returns a description of its content.

    Args:
        file: open at the beginning of the pickle.
        size: bytes of the whole checkpoint.
        sizes: bytes of the storages by name in a zip archive; None for a legacy file.
    """

    def __init__(self, file: BinaryIO, size: int, sizes: dict[str, int] | None = None) -> None:
        super().__init__(_ExactFile(file, size), encoding='utf-8')
        self.limits = Limits(size)
        self.storage_sizes = sizes
        self.storages: dict[str, Description] = {}

    def unknown(self) -> None:
        require(False, 'an opcode that checkpoints do not use')

    def protocol(self) -> None:
        number = self.read(1)[0]
        if number != 2:
            raise UnsafeCheckpointError(f'a pickle of protocol {number} (torch.save uses 2)')

    def find_class(self, module: str, name: str) -> Global:
        """A global stays a name."""
        module, name = NAME_MAPPING.get((module, name), (module, name))  # names of Python 2
        module = IMPORT_MAPPING.get(module, module)
        if f'{module}.{name}' not in KNOWN:
            raise UnsafeCheckpointError(repr(f'{module}.{name}'[:80]))
        return Global(f'{module}.{name}')

    def dictionary(self) -> None:
        self.append(Description('dict'))

    def set_item(self) -> None:
        item = self.stack[-2:]
        del self.stack[-2:]
        self.set_items(item)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        is_dict = kind_of(target) in _DICTS and not target.is_final
        require(is_dict and len(items) % 2 == 0, 'items for an object that is not a dict')
        if not target.items:
            self.limits.use(128)
            target.items = []
        target.items += items
        check_keys(self.limits, items[::2], len(target.items) // 2)

    def call(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        known = isinstance(function, Global) and function.name in CALLS
        require(known and type(arguments) is tuple, 'a call of an object that is not a function')
        self.append(CALLS[function.name](self.limits, *arguments))

    def new_object(self) -> None:
        arguments, cls = self.stack.pop(), self.stack.pop()
        known = isinstance(cls, Global) and cls.name in CLASSES
        require(known and arguments == (), 'an object of an unexpected class')
        self.append(Description(cls.name))

    def set_state(self) -> None:
        state = self.stack.pop()
        check_state(self.limits, self.stack[-1], state)

    def persistent_load(self, identity: Any) -> Description:
        """A storage, which torch.save refers to by a tuple."""
        require(type(identity) is tuple and len(identity) in (5, 6), 'an unknown reference')
        self.limits.use(256)
        word, cls, key, location, count = identity[:5]
        require(
            word == 'storage'
            and isinstance(cls, Global)
            and cls.name in STORAGES
            and type(key) is str
            and is_device(location)
            and key.isascii()  # torch's zip reader may take two other names for the same
            and type(count) is int
            and count >= 0
            # views of storages (torch before 0.4) use freed memory if their storage is enlarged
            and identity[5:] == (() if self.storage_sizes is not None else (None,)),
            'a storage that torch.save would describe differently',
        )
        require(location != 'meta', 'a storage without content')
        dtype = STORAGES[cls.name]
        size = count * dtype.itemsize
        require(size <= self.limits.size, 'a storage larger than the file')
        made = self.storages.setdefault(key, Description('storage', size, dtype, location))
        is_same = (made.size, made.dtype, made.location) == (size, dtype, location)
        require(is_same, f'two descriptions of storage {key[:20]!r}')
        if self.storage_sizes is not None:
            there = self.storage_sizes.get(key)
            require(there is not None, f'no storage {key[:20]!r}')
            require(there == size, f'a storage of {there} bytes that should have {size}')
        return made


def _counted(step: Callable[[Inspection], None]) -> Callable[[Inspection], None]:
    def count(inspection: Inspection) -> None:
        inspection.limits.use(64)
        step(inspection)

    return count


_COMMON = (
    *(pickle.STOP, pickle.GLOBAL, pickle.BINPERSID, pickle.MARK),
    *(pickle.BINGET, pickle.LONG_BINGET, pickle.BINPUT, pickle.LONG_BINPUT),
    *(pickle.APPEND, pickle.APPENDS, pickle.EMPTY_LIST, pickle.EMPTY_TUPLE),
    *(pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.BINFLOAT),
    *(pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1),
    *(pickle.BINUNICODE, pickle.SHORT_BINSTRING),
)
# the opcodes of torch's unpickler; the methods of Python's unpickler in _COMMON call nothing
_STEPS = {
    **dict.fromkeys(range(256), Inspection.unknown),
    **{code[0]: pickle._Unpickler.dispatch[code[0]] for code in _COMMON},
    pickle.PROTO[0]: Inspection.protocol,
    pickle.EMPTY_DICT[0]: Inspection.dictionary,
    pickle.SETITEM[0]: Inspection.set_item,
    pickle.SETITEMS[0]: lambda inspection: inspection.set_items(inspection.pop_mark()),
    pickle.REDUCE[0]: Inspection.call,
    pickle.NEWOBJ[0]: Inspection.new_object,
    pickle.BUILD[0]: Inspection.set_state,
}
Inspection.dispatch = _STEPS | {code[0]: _counted(_STEPS[code[0]]) for code in _NEW}
