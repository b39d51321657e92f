"""Reading a checkpoint without executing anything that is in it.

torch's reader of pickles (``weights_only=True``) calls only functions that it knows; here it also
learns the few that mmengine's checkpoints name, by functions and classes of this module that take
nothing but numbers. Before it reads a file, :mod:`mmbixt.checkpoints.layout` has looked through all
of it, and refuses also what somebody allowed by ``torch.serialization.add_safe_globals``.
"""

import argparse
import collections
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import serialization

from mmbixt.checkpoints.calls import HISTORY_BUFFER, NAMESPACE, NUMPY, ONE_CYCLE, require

_LOCK = threading.RLock()  # the names are those of the whole process


def read(file: BinaryIO, map_location: Any) -> Any:
    """What is in a file, which :func:`inspect_file` has passed."""
    with _LOCK, _our_globals():
        loaded = torch.load(file, map_location, weights_only=True, mmap=False)
    return _finish(loaded, {})


class _Unfinished:
    """An object of numpy while the file is read; :func:`_finish` puts ``value`` in its place."""

    value: Any = None


class _Dtype(_Unfinished):
    """A dtype; numpy's own takes any state, and arrays that use it would be read wrongly."""

    def __init__(self, code: str, align: bool = False, copy: bool = True) -> None:
        self.code, self.value = code, np.dtype(code, copy=True)

    def __setstate__(self, state: tuple) -> None:
        order = state[1]
        require(order in ('<', '>', '|', '='), 'a dtype of no byte order')
        self.value = np.dtype(order + self.code, copy=True)


class _Array(_Unfinished):
    """An array, whose content comes as its state."""

    is_taken = False  # by a log history, which makes numbers of 8 bytes of it

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, is_fortran, content = state
        require(math.prod(shape) * dtype.value.itemsize == len(content), 'an array of another size')
        self.value = _numbers(content, dtype).reshape(shape, order='F' if is_fortran else 'C')


def _numbers(content: bytes, dtype: _Dtype) -> np.ndarray:
    """An array in memory of its own."""
    if dtype.value.kind == 'b':
        require(not content.strip(b'\0\1'), 'a truth value other than 0 and 1')
    return np.frombuffer(content, np.dtype(dtype.value, copy=True)).copy()


def _reconstruct(cls: str, shape: tuple, code: str) -> _Array:
    return _Array()


def _scalar(dtype: _Dtype, content: bytes) -> np.generic:
    require(len(content) == dtype.value.itemsize, 'a scalar of no size')
    return _numbers(content, dtype)[0]


class _Annealing(_Unfinished):
    """One of the two functions of mmengine's OneCycleParamScheduler, which its state names."""

    def __init__(self, name: str) -> None:
        from mmengine.optim.scheduler.param_scheduler import OneCycleParamScheduler

        self.value = getattr(OneCycleParamScheduler, name)


def _getattr(owner: type, name: str) -> str | _Annealing:
    """mmengine's HistoryBuffer names its own statistics, too, which it has anyway."""
    return _Annealing(name) if owner is _Annealing else name


class _HistoryBuffer:
    """Becomes mmengine's HistoryBuffer when its state comes."""

    def __setstate__(self, state: dict) -> None:
        from mmengine.logging import HistoryBuffer

        arrays, limit = [state['_log_history'], state['_count_history']], state['max_length']
        for array in arrays:
            is_own = type(array) is _Array and not array.is_taken and np.ndim(array.value) == 1
            require(is_own, 'a log history without numbers of its own')
            array.is_taken = True
        require(type(limit) is int and limit > 0, 'a log history without a length')
        self.__class__ = HistoryBuffer
        self.__init__(*(array.value.astype(float) for array in arrays), max_length=limit)


_GLOBALS = [
    (_HistoryBuffer, HISTORY_BUFFER),
    (_Annealing, ONE_CYCLE),
    (argparse.Namespace, NAMESPACE),
    (_Dtype, 'numpy.dtype'),
    ('numpy.ndarray', 'numpy.ndarray'),  # a name that can be passed on, but not called
    (_getattr, 'builtins.getattr'),
    (bytes, 'builtins.bytes'),
    (frozenset, 'builtins.frozenset'),
    *((_reconstruct, f'{module}._reconstruct') for module in NUMPY),
    *((_scalar, f'{module}.scalar') for module in NUMPY),
    (_Array, f'{__name__}._Array'),  # whose state may be set
]


@contextmanager
def _our_globals() -> Iterator[None]:
    """Let names mean what they mean here, also where somebody has allowed numpy's own."""
    allowed = serialization.get_safe_globals()
    serialization.clear_safe_globals()
    try:
        with serialization.safe_globals(_GLOBALS):
            yield
    finally:
        serialization.add_safe_globals(allowed)


def _finish(value: Any, done: dict[int, tuple[Any, Any]]) -> Any:
    """Put numpy's objects in the place of unfinished ones, in all containers.

    ``done`` has what was met before: identity -> (the object, what takes its place).
    """
    if value is None or isinstance(value, int | float | str | bytes):
        return value  # of which a file may have millions, each a byte or two long
    if id(value) in done:
        return done[id(value)][1]
    is_code = callable(value) or isinstance(value, serialization.StorageType)
    require(not is_code, 'a function or class among the data')
    if isinstance(value, _Unfinished):
        require(value.value is not None, 'an array without content')
        return value.value
    if type(value) is tuple:
        parts = tuple(_finish(part, done) for part in value)
        is_same = all(new is old for new, old in zip(parts, value, strict=True))
        done[id(value)] = value, value if is_same else parts
        return done[id(value)][1]
    done[id(value)] = value, value
    has_attributes = isinstance(value, argparse.Namespace | collections.OrderedDict)
    for container in (value, vars(value) if has_attributes else None):
        if isinstance(container, dict | list):
            items = enumerate(container) if isinstance(container, list) else container.items()
            for key, part in items:
                whole = _finish(part, done)
                if whole is not part:
                    container[key] = whole
    return value
