"""mmengine, where it is installed; without it the networks are plain modules of torch."""

import logging
from collections.abc import Callable

from torch import nn

try:
    from mmengine.logging import print_log
    from mmengine.model import BaseModule
except ImportError:

    class BaseModule(nn.Module):
        """In place of mmengine's class."""

        def __init__(self, init_cfg: dict | None = None) -> None:
            if init_cfg is not None:
                raise ImportError(
                    'init_cfg needs mmengine, which cannot be imported. Without it: '
                    "backbone.load_state_dict(mmbixt.checkpoints.loader.load('file.pth'))."
                )
            super().__init__()

    class MODELS:
        """In place of mmengine's registry."""

        @staticmethod
        def register_module() -> Callable[[type], type]:
            return lambda module: module

    def log(text: str) -> None:
        logging.getLogger('mmbixt').info(text)

else:
    from mmbixt.registry import MODELS

    def log(text: str) -> None:
        """Write to the log of the run, if there is one."""
        print_log(text, 'current')


__all__ = ['MODELS', 'BaseModule', 'log']
