"""mmbixt's reader of checkpoints and its log in programs of OpenMMLab.

:mod:`mmbixt.registry`, which any config with a component of mmbixt imports, calls these functions.
"""

import logging
from typing import Any

from mmengine.logging import print_log
from mmengine.runner import CheckpointLoader

from mmbixt.checkpoints import loader
from mmbixt.checkpoints.sources import SCHEMES


def load_from_mmbixt(name: str, map_location: Any = None) -> Any:
    """:func:`mmbixt.checkpoints.loader.load`; mmengine logs what follows 'load_from_'."""
    return loader.load(name, map_location)


def replace_readers() -> None:
    """Let mmengine read files and URLs by mmbixt's safe reader, and published weights by name.

    With torch >= 2.6 mmengine's own reader of files cannot read mmengine's checkpoints; its reader
    of URLs executes what a file contains. Backbones then also read mmengine's own names
    (openmmlab://, s3://).
    """
    for prefix in ('', 'http://', 'https://', *SCHEMES, loader.TIMM):
        CheckpointLoader.register_scheme(prefix, load_from_mmbixt, force=True)
    loader.read = CheckpointLoader.load_checkpoint


class ToTheLogOfTheRun(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_log(record.getMessage(), 'current', record.levelno)


def log_to_the_run() -> None:
    logger = logging.getLogger('mmbixt')
    logger.setLevel(logging.INFO)
    logger.addHandler(ToTheLogOfTheRun())
    logger.propagate = False
