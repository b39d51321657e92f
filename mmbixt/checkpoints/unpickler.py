"""Reading a checkpoint's pickle without executing anything that is in it.

A pickle is a program: it names functions and says with what to call them. This reader knows the
few that data need and refuses any other by name. ``torch.load`` does the rest: it takes the module
that reads pickles as an argument, and :class:`SafePickle` is one.
"""

import argparse
import collections
import pickle
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from typing import Any

import numpy as np
import torch


class UnsafeCheckpointError(RuntimeError):
    """The file asks for something that is not data."""


def _codecs_encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in an old protocol."""
    if encoding not in ('latin1', 'latin-1'):
        raise UnsafeCheckpointError(f'an encoding {encoding!r}')
    return text.encode('latin1')


def _bytes() -> bytes:
    """How Python 3 writes no bytes in an old protocol."""
    return b''


# Stands for numpy's class, which must not be called: it makes arrays of pointers from any bytes.
_NDARRAY = 'numpy.ndarray'


def _numpy_array(subtype: str, shape: tuple, typecode: bytes) -> np.ndarray:
    """An empty array whose content follows; subclasses of ndarray are refused."""
    if subtype is not _NDARRAY:
        raise UnsafeCheckpointError(f'an array of type {subtype}')
    return np.empty(0, np.uint8)


def _numpy_dtype(code: str, align: bool = False, copy: bool = True) -> np.dtype:
    dtype = np.dtype(code, copy=True)
    if dtype.hasobject:
        raise UnsafeCheckpointError('numpy objects, not numbers')
    return dtype


def _numpy_scalar(dtype: np.dtype, data: bytes) -> np.generic:
    return np.frombuffer(data, dtype, count=1)[0]


def _attribute(owner: Any, name: str) -> str:
    """mmengine's HistoryBuffer names its own statistics (``HistoryBuffer.mean``): names suffice."""
    if owner is not _HistoryBuffer or name not in ('min', 'max', 'current', 'mean'):
        raise UnsafeCheckpointError(f'the attribute {name!r} of {owner!r}')
    return name


class _HistoryBuffer:
    """Stands for mmengine's class while the file is read; see :func:`_set_history`."""


def _set_history(buffer: Any, state: dict) -> None:
    from mmengine.logging import HistoryBuffer

    buffer.__class__ = HistoryBuffer
    histories = (np.asarray(state[key], float) for key in ('_log_history', '_count_history'))
    buffer.__init__(*histories, max_length=int(state['max_length']))


def _set_array(array: np.ndarray, state: tuple) -> None:
    dtype = state[2]
    if not isinstance(dtype, np.dtype) or dtype.hasobject:
        raise UnsafeCheckpointError('an array of objects')
    array.__setstate__(state)


def _set_dtype(dtype: np.dtype, state: tuple) -> None:
    if any(part is not None for part in state[2:5]):  # subarrays and fields
        raise UnsafeCheckpointError('a structured array')
    dtype.__setstate__(state)


def _set_attributes(instance: Any, state: dict) -> None:
    if not isinstance(state, dict):
        raise UnsafeCheckpointError(f'a {type(instance).__name__} with slots')
    vars(instance).update(state)


# (module, name) as files have them -> what stands for it here
_GLOBALS = {
    ('collections', 'OrderedDict'): collections.OrderedDict,
    ('collections', 'Counter'): collections.Counter,
    ('collections', 'deque'): collections.deque,
    ('builtins', 'set'): set,
    ('builtins', 'frozenset'): frozenset,
    ('builtins', 'complex'): complex,
    ('builtins', 'slice'): slice,
    ('builtins', 'range'): range,
    ('builtins', 'bytes'): _bytes,
    ('builtins', 'bytearray'): bytearray,
    ('builtins', 'getattr'): _attribute,
    ('_codecs', 'encode'): _codecs_encode,
    ('argparse', 'Namespace'): argparse.Namespace,
    ('mmengine.logging.history_buffer', 'HistoryBuffer'): _HistoryBuffer,
    ('numpy', 'ndarray'): _NDARRAY,
    ('numpy', 'dtype'): _numpy_dtype,
    ('torch', 'Size'): torch.Size,
    ('torch', 'device'): torch.device,
    ('torch._utils', '_rebuild_tensor'): torch._utils._rebuild_tensor,
    ('torch._utils', '_rebuild_tensor_v2'): torch._utils._rebuild_tensor_v2,
    ('torch._utils', '_rebuild_parameter'): torch._utils._rebuild_parameter,
}
for _module in ('numpy.core.multiarray', 'numpy._core.multiarray'):  # numpy 1 and 2
    _GLOBALS[_module, '_reconstruct'] = _numpy_array
    _GLOBALS[_module, 'scalar'] = _numpy_scalar
for _name, _value in vars(torch).items():
    if isinstance(_value, torch.dtype):
        _GLOBALS['torch', _name] = _value

# exact type of an object -> how a state is put into it
_SET_STATE = {
    argparse.Namespace: _set_attributes,
    collections.OrderedDict: _set_attributes,  # torch keeps a state dict's versions there
    np.ndarray: _set_array,
    _HistoryBuffer: _set_history,
}


# pickle.Unpickler, written in C, sets states on its own: on functions and classes too. The same
# reader in Python lets us say on what.
class _SafeUnpickler(pickle._Unpickler):
    dispatch = dict(pickle._Unpickler.dispatch)

    def find_class(self, module: str, name: str) -> Any:
        if self.proto < 3:  # names of Python 2, which old protocols write
            module, name = NAME_MAPPING.get((module, name), (module, name))
            module = IMPORT_MAPPING.get(module, module)
        if (module, name) not in _GLOBALS:
            raise UnsafeCheckpointError(f'{module}.{name}')
        return _GLOBALS[module, name]

    def load_build(self) -> None:
        state = self.stack.pop()
        instance = self.stack[-1]
        is_dtype = isinstance(instance, np.dtype)
        set_state = _set_dtype if is_dtype else _SET_STATE.get(type(instance))
        if set_state is None:
            raise UnsafeCheckpointError(f'a state for {instance!r}')
        set_state(instance, state)

    dispatch[pickle.BUILD[0]] = load_build


class SafePickle:
    """What ``torch.load`` wants of a pickle module."""

    Unpickler = _SafeUnpickler
    UnpicklingError = pickle.UnpicklingError

    @staticmethod
    def load(file: Any, **kwargs: Any) -> Any:
        return _SafeUnpickler(file, **kwargs).load()
