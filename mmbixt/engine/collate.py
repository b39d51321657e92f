from collections.abc import Sequence
from typing import Any

from mmengine.dataset import default_collate as stock_default_collate

from mmbixt.registry import FUNCTIONS


@FUNCTIONS.register_module()
def default_collate(batch: Sequence[Any], _scope_: str | None = None) -> Any:
    """mmengine's ``default_collate`` for configs that are inherited as ``_base_ = 'mmbixt::...'``.

    mmengine adds a key ``_scope_`` to each dict of such a config, and the data loader passes it on
    as an argument, which the stock function does not accept.
    """
    return stock_default_collate(batch)
