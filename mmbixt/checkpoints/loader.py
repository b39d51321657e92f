"""mmengine's checkpoint readers, replaced by ones that execute nothing from the file."""

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch

from mmbixt.checkpoints.unpickler import SafePickle, UnsafeCheckpointError

TRUST = 'MMBIXT_TRUST_CHECKPOINTS'


class CheckpointFileError(RuntimeError):
    """The file is no checkpoint, or a broken one."""


def load_from_local(filename: str, map_location: Any = None) -> Any:
    """Read a checkpoint file, safely unless the user trusts it explicitly.

    Args:
        filename: path of a file that ``torch.save`` wrote.
        map_location: as in ``torch.load``.
    """
    path = Path(filename).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f'There is no checkpoint file at {path}.')
    if os.environ.get(TRUST, '0') not in ('', '0'):
        return torch.load(path, map_location, weights_only=False)
    if _is_torchscript(path):
        raise CheckpointFileError(f'{path} is a TorchScript program, not a checkpoint.')
    try:
        return torch.load(path, map_location, pickle_module=SafePickle, weights_only=False)
    except UnsafeCheckpointError as error:
        raise UnsafeCheckpointError(
            f'{path} was not loaded: besides data it asks for {error}, and whatever a checkpoint '
            'asks for is executed. If you wrote the file yourself, or trust whoever did, set '
            f'{TRUST}=1 (tools/train.py and tools/test.py: --trust-checkpoint).'
        ) from None
    except (pickle.UnpicklingError, EOFError, OSError, RuntimeError, *_MALFORMED) as error:
        raise CheckpointFileError(
            f'{path} ({path.stat().st_size} bytes) cannot be read as a checkpoint; it may be '
            f'incomplete or something else: {type(error).__name__}: {error}'
        ) from error


# what a pickle of random bytes can end in
_MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError, UnicodeError)


def _is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith('/constants.pkl') for name in archive.namelist())


def load_from_http(filename: str, map_location: Any = None, model_dir: str | None = None) -> Any:
    """Download a checkpoint once, into torch hub's cache, and read it like a local one."""
    from mmengine.dist import get_dist_info, master_only
    from torch.hub import download_url_to_file, get_dir

    folder = Path(model_dir or os.path.join(get_dir(), 'checkpoints'))
    path = folder / Path(urlparse(filename).path).name

    @master_only
    def download() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        download_url_to_file(filename, str(path))

    if not path.is_file():
        download()
    if get_dist_info()[1] > 1:
        torch.distributed.barrier()
    return load_from_local(str(path), map_location)


def register_checkpoint_readers() -> None:
    """Make mmengine's runners and ``init_cfg`` read files through this module."""
    from mmengine.runner import CheckpointLoader

    readers: dict[str | tuple, Callable] = {
        '': load_from_local,
        ('http://', 'https://'): load_from_http,
    }
    for prefixes, reader in readers.items():
        CheckpointLoader.register_scheme(prefixes, reader, force=True)
