from collections.abc import Sequence
from typing import Any

from mmengine.dataset import default_collate as stock_default_collate

from mmbixt.registry import FUNCTIONS


@FUNCTIONS.register_module()
def default_collate(batch: Sequence[Any], _scope_: str | None = None) -> Any:
    """mmengine's, which fails in a config that was inherited as ``_base_ = 'mmbixt::...'``.

    All dicts of such a config get a ``_scope_``, and the loader takes it for an argument.
    """
    return stock_default_collate(batch)
