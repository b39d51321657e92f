"""The files that weights were read from, for messages.

mmengine passes only the tensors from the reader to the model, not the name of the file.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

_FILES = WeakTensorKeyDictionary()  # tensor -> name, without keeping the tensor alive


def remember(weights: Mapping[str, Any], file: str) -> None:
    """Note the file of these weights."""
    for value in weights.values():
        if isinstance(value, Tensor):
            _FILES[value] = file


def file_of(weights: Mapping[str, Tensor]) -> str | None:
    """The file that weights were read from by mmbixt; None if it is unknown."""
    return next((_FILES[value] for value in weights.values() if value in _FILES), None)
