"""Read a checkpoint with torch's safe unpickler (``weights_only=True``).

It calls only functions of a list. Here the list also has the few names in mmengine's checkpoints,
which stand for functions and classes of this module that accept only numbers.
:mod:`mmbixt.checkpoints.layout` checks the whole file before, and also refuses functions that were
allowed by ``torch.serialization.add_safe_globals``.
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

_LOCK = threading.RLock()  # torch has one list of names for the whole process


def read(file: BinaryIO, map_location: Any) -> Any:
    """The content of a file that :func:`inspect_file` has accepted."""
    with _LOCK, _our_globals():
        loaded = torch.load(file, map_location, weights_only=True, mmap=False)
    return _replace(loaded, {})


class _Placeholder:
    """Stands for an object while the file is read; :func:`_replace` replaces it by ``value``."""

    value: Any = None


class _Dtype(_Placeholder):
    """A dtype. numpy's own accepts any state, also wrong ones that corrupt arrays."""

    def __init__(self, code: str, align: bool = False, copy: bool = True) -> None:
        self.code, self.value = code, np.dtype(code, copy=True)

    def __setstate__(self, state: tuple) -> None:
        order = state[1]
        require(order in ('<', '>', '|', '='), 'a dtype without byte order')
        self.value = np.dtype(order + self.code, copy=True)


class _Array(_Placeholder):
    """An array; its state holds its content."""

    is_used = False  # by a log history, which may need 8 times the memory for a copy

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, is_fortran, content = state
        require(math.prod(shape) * dtype.value.itemsize == len(content), 'an array of another size')
        self.value = _numbers(content, dtype).reshape(shape, order='F' if is_fortran else 'C')


def _numbers(content: bytes, dtype: _Dtype) -> np.ndarray:
    """An array that owns its memory."""
    if dtype.value.kind == 'b':
        require(not content.strip(b'\0\1'), 'a Boolean other than 0 and 1')
    return np.frombuffer(content, np.dtype(dtype.value, copy=True)).copy()


def _reconstruct(cls: str, shape: tuple, code: str) -> _Array:
    return _Array()


def _scalar(dtype: _Dtype, content: bytes) -> np.generic:
    require(len(content) == dtype.value.itemsize, 'a scalar of another size')
    return _numbers(content, dtype)[0]


class _Annealing(_Placeholder):
    """One of two functions of mmengine's OneCycleParamScheduler, saved in its state."""

    def __init__(self, name: str) -> None:
        from mmengine.optim.scheduler.param_scheduler import OneCycleParamScheduler

        self.value = getattr(OneCycleParamScheduler, name)


def _getattr(owner: type, name: str) -> str | _Annealing:
    """``builtins.getattr``; of a HistoryBuffer only the names of its functions are needed."""
    return _Annealing(name) if owner is _Annealing else name


class _HistoryBuffer:
    """Becomes mmengine's HistoryBuffer when its state is set."""

    def __setstate__(self, state: dict) -> None:
        from mmengine.logging import HistoryBuffer

        arrays, limit = [state['_log_history'], state['_count_history']], state['max_length']
        for array in arrays:
            is_own = type(array) is _Array and not array.is_used and np.ndim(array.value) == 1
            require(is_own, 'a log history without its own numbers')
            array.is_used = True
        require(type(limit) is int and limit > 0, 'a log history without a length')
        self.__class__ = HistoryBuffer
        self.__init__(*(array.value.astype(float) for array in arrays), max_length=limit)


_GLOBALS = [
    (_HistoryBuffer, HISTORY_BUFFER),
    (_Annealing, ONE_CYCLE),
    (argparse.Namespace, NAMESPACE),
    (_Dtype, 'numpy.dtype'),
    ('numpy.ndarray', 'numpy.ndarray'),  # a text, which can be an argument, but not be called
    (_getattr, 'builtins.getattr'),
    (bytes, 'builtins.bytes'),
    (frozenset, 'builtins.frozenset'),
    *((_reconstruct, f'{module}._reconstruct') for module in NUMPY),
    *((_scalar, f'{module}.scalar') for module in NUMPY),
    (_Array, f'{__name__}._Array'),  # allows setting its state
]


@contextmanager
def _our_globals() -> Iterator[None]:
    """Use only the names of ``_GLOBALS``, even if a user has allowed numpy's own classes."""
    allowed = serialization.get_safe_globals()
    serialization.clear_safe_globals()
    try:
        with serialization.safe_globals(_GLOBALS):
            yield
    finally:
        serialization.add_safe_globals(allowed)


def _replace(value: Any, done: dict[int, tuple[Any, Any]]) -> Any:
    """Replace placeholders by their values, in all containers.

    ``done`` has the objects already visited: id -> (object, replacement).
    """
    if value is None or isinstance(value, int | float | str | bytes):
        return value  # first, because a small file may have millions of these
    if id(value) in done:
        return done[id(value)][1]
    is_code = callable(value) or isinstance(value, serialization.StorageType)
    require(not is_code, 'a function or class among the data')
    if isinstance(value, _Placeholder):
        require(value.value is not None, 'an array without content')
        return value.value
    if type(value) is tuple:
        parts = tuple(_replace(part, done) for part in value)
        is_same = all(new is old for new, old in zip(parts, value, strict=True))
        done[id(value)] = value, value if is_same else parts
        return done[id(value)][1]
    done[id(value)] = value, value
    has_attributes = isinstance(value, argparse.Namespace | collections.OrderedDict)
    for container in (value, vars(value) if has_attributes else None):
        if isinstance(container, dict | list):
            items = enumerate(container) if isinstance(container, list) else container.items()
            for key, part in items:
                new = _replace(part, done)
                if new is not part:
                    container[key] = new
    return value
