"""Walking through configs."""

from typing import Any

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
