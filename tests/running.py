"""What tests of whole runs share: scenes to run on, and mmengine as it is in a new process."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

from mmengine.logging import MMLogger
from mmengine.utils import ManagerMixin

from mmbixt.registry import Registry
from mmbixt.sample.sample_data import MANIFEST, write_sample_data


@contextmanager
def fresh_mmengine() -> Iterator[None]:
    """Without the loggers, visualizers, default scopes ... of earlier runs in this process.

    Configs are written without yapf, which would format each some times, for seconds of a run.
    """
    kinds = [ManagerMixin]
    for kind in kinds:  # the list grows meanwhile
        kinds += kind.__subclasses__()
    with ExitStack() as stack:
        for kind in kinds:
            stack.enter_context(mock.patch.dict(kind._instance_dict, clear=True))
        stack.enter_context(mock.patch.object(Registry, 'latest_framework', None))
        stack.enter_context(mock.patch('mmengine.config.config.FormatCode', unformatted))
        try:
            yield
        finally:
            for logger in MMLogger._instance_dict.values():
                for handler in logger.handlers:
                    handler.close()


def unformatted(text: str, **_: object) -> tuple[str, bool]:
    return text, False


def write_few_scenes(root: Path, train: int = 4, val: int = 3) -> Path:
    """Sample data that ``--sample`` takes for complete; to make all of the scenes takes long."""
    manifest = write_sample_data(root, train, val) / MANIFEST
    written = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**written, 'train': 256, 'val': 32}))
    return manifest.parent
