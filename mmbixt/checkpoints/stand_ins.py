"""What torch's safe reader (``weights_only=True``) needs for the names in mmengine's checkpoints.

The reader calls only classes and functions that it knows. The names below occur in pickles of
mmengine's log histories and schedulers, and of the authors' options. The reader replaces them by
classes and functions of this module that accept only numbers: nothing from the file is executed.
"""

import argparse
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pickle import UnpicklingError
from threading import RLock
from typing import Any

import numpy as np
from torch import serialization


class _Dtype:
    """A dtype of numbers. numpy's dtype accepts states that corrupt the memory of arrays."""

    def __init__(self, code: str, *_: bool) -> None:
        if code[:1] not in tuple('biufc') or not code[1:].isdecimal():
            raise UnpicklingError(f'numpy data of type {code[:20]!r}, which are not numbers')
        self.value = np.dtype(code)

    def __setstate__(self, state: tuple) -> None:
        """Of numpy's state, only the byte order is used."""
        if state[1] not in ('<', '>', '|', '='):
            raise UnpicklingError('a dtype without a byte order')
        self.value = self.value.newbyteorder(state[1])


class _Array(np.ndarray):
    """An empty array, which gets its content by its state; it is saved as a numpy array."""

    def __new__(cls) -> '_Array':
        return super().__new__(cls, 0)

    def __setstate__(self, state: tuple) -> None:
        version, shape, dtype, is_fortran, content = state
        is_shape = type(shape) is tuple and all(type(n) is int and n >= 0 for n in shape)
        if not (is_shape and type(dtype) is _Dtype and type(content) is bytes):
            raise UnpicklingError('an unexpected state of an array')
        if math.prod(shape) * dtype.value.itemsize != len(content):
            raise UnpicklingError('an array of another size than its content')
        super().__setstate__((version, shape, dtype.value, is_fortran, content))

    def __reduce_ex__(self, protocol: int) -> tuple:
        return self.view(np.ndarray).__reduce_ex__(protocol)


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _scalar(dtype: _Dtype, content: bytes) -> np.generic:
    if type(dtype) is not _Dtype or len(content) != dtype.value.itemsize:
        raise UnpicklingError('an unexpected state of a number')
    return np.frombuffer(content, dtype.value)[0]


class _HistoryBuffer:
    """Becomes mmengine's log history when its state is set."""

    def __setstate__(self, state: dict) -> None:
        from mmengine.logging import HistoryBuffer  # only files of mmengine need it

        histories = state['_log_history'], state['_count_history']
        if not all(type(x) is _Array for x in histories):  # others may tell numpy any address
            raise UnpicklingError('an unexpected state of a log history')
        self.__class__ = HistoryBuffer
        self.__init__(*histories, int(state['max_length']))


_ONE_CYCLE = 'mmengine.optim.scheduler.param_scheduler.OneCycleParamScheduler'


def _attribute(owner: Any, name: str) -> Any:
    """In place of getattr: only the functions that states of log histories and schedulers name."""
    if owner is _HistoryBuffer and name in ('min', 'max', 'current', 'mean'):
        return name  # every log history has them
    if owner == _ONE_CYCLE and name in ('_annealing_cos', '_annealing_linear'):
        from mmengine.optim.scheduler.param_scheduler import OneCycleParamScheduler

        return getattr(OneCycleParamScheduler, name)
    raise UnpicklingError(f'the attribute {str(name)[:40]!r} of an object')


_STAND_INS = [
    (_HistoryBuffer, 'mmengine.logging.history_buffer.HistoryBuffer'),
    (_ONE_CYCLE, _ONE_CYCLE),  # a text, which can be an argument, but not be called
    (_attribute, 'builtins.getattr'),
    (argparse.Namespace, 'argparse.Namespace'),
    (bytes, 'builtins.bytes'),
    (frozenset, 'builtins.frozenset'),
    (_Dtype, 'numpy.dtype'),
    (_Array, 'numpy.ndarray'),
    *((_reconstruct, f'numpy.{core}.multiarray._reconstruct') for core in ('core', '_core')),
    *((_scalar, f'numpy.{core}.multiarray.scalar') for core in ('core', '_core')),
]


_LOCK = RLock()  # torch's list is of all threads


@contextmanager
def stand_ins() -> Iterator[None]:
    """Let torch's reader use these, also where a user has allowed the classes themselves."""
    with _LOCK:
        allowed = serialization.get_safe_globals()
        serialization.clear_safe_globals()
        try:
            with serialization.safe_globals(_STAND_INS):
                yield
        finally:
            serialization.add_safe_globals(allowed)
