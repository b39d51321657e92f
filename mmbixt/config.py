"""Walking through configs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from mmengine.config import ConfigDict


def all_dicts(*nodes: Any) -> list[ConfigDict]:
    """All dicts in parts of a config, each once."""
    found, rest = {}, list(nodes)
    for node in rest:  # which grows
        if isinstance(node, dict):
            found[id(node)] = node
            rest += node.values()
        elif isinstance(node, (list, tuple)):
            rest += node
    return list(found.values())


def type_name(node: Mapping[str, Any]) -> str:
    """The type of a part, which is a class in configs in Python's own syntax."""
    kind = node.get('type')
    return kind.__name__ if isinstance(kind, type) else str(kind)


def plain(part: Any) -> Any:
    """A part of a config of dicts, lists, texts and numbers alone, for comparisons."""
    if isinstance(part, Mapping):
        return {str(key): plain(x) for key, x in part.items()}
    if isinstance(part, list | tuple):
        return [*map(plain, part)]
    if isinstance(part, np.generic | np.ndarray):
        return part.tolist()
    is_plain = part is None or isinstance(part, str | int | float)
    return part if is_plain else getattr(part, '__name__', type(part).__name__)


def within(cfg: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """A part of a config; empty where it is missing, None or an object."""
    for key in keys:
        part = cfg.get(key)
        cfg = part if isinstance(part, Mapping) else {}
    return cfg
