"""The files that weights were read from, and what these say of adapters.

mmengine passes only the tensors from the reader to the model, not the rest of the file.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

_NONE: Mapping[str, Any] = MappingProxyType({})
_FILES = WeakTensorKeyDictionary()  # tensor -> (name, notes), without keeping the tensor alive


def remember(weights: Mapping[str, Any], file: str, notes: Mapping[str, Any] = _NONE) -> None:
    """Note the file of these weights, and its notes of :func:`note_adapters`."""
    for value in weights.values():
        if isinstance(value, Tensor):
            _FILES[value] = file, notes


def origin_of(weights: Mapping[str, Tensor]) -> tuple[str | None, Mapping[str, Any]]:
    """The file that weights were read from by mmbixt (None if it is unknown), and its notes."""
    return next((_FILES[value] for value in weights.values() if value in _FILES), (None, _NONE))


def file_of(weights: Mapping[str, Tensor]) -> str | None:
    return origin_of(weights)[0]
