"""mmengine's checkpoint readers, replaced by ones that execute nothing from the file."""

import os
import pickle
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO
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
    try:
        with path.open('rb') as file:
            _refuse_other_formats(file)
            return torch.load(file, map_location, pickle_module=SafePickle, weights_only=False)
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
_MALFORMED = (
    *(AttributeError, IndexError, KeyError, TypeError, ValueError),
    *(UnicodeError, MemoryError, OverflowError),
)


def _refuse_other_formats(file: BinaryIO) -> None:
    """``torch.load`` also runs TorchScript programs and unpacks tar archives; we do neither."""
    if tarfile.is_tarfile(file):
        raise UnsafeCheckpointError('a tar archive (of torch before 0.1.10) to be unpacked')
    file.seek(0)
    if file.read(4) == b'PK\x03\x04':
        file.seek(0)
        # torch's own parser: another one may see another archive in the same bytes
        if 'constants.pkl' in torch._C.PyTorchFileReader(file).get_all_records():
            raise UnsafeCheckpointError('a TorchScript program to be loaded')
    file.seek(0)


def load_from_http(
    filename: str, map_location: Any = None, model_dir: str | None = None, progress: bool = True
) -> Any:
    """Download a checkpoint once, into torch hub's cache, and read it like a local one."""
    from mmengine.dist import barrier, get_local_rank

    folder = Path(model_dir or os.path.join(torch.hub.get_dir(), 'checkpoints'))
    path = folder / _cache_name(filename)
    if get_local_rank() == 0 and not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(filename, str(path), progress=progress)
    barrier()
    return load_from_local(str(path), map_location)


def _cache_name(url: str) -> str:
    """As torch hub names it; where the last part of the address is no file name, made unique."""
    name = Path(urlparse(url).path).name
    return name if '.' in name else f'{sha256(url.encode()).hexdigest()[:12]}-{name}'


def register_checkpoint_readers() -> None:
    """Make mmengine's runners and ``init_cfg`` read files through this module."""
    from mmengine.runner import CheckpointLoader, checkpoint

    CheckpointLoader.register_scheme('', load_from_local, force=True)
    CheckpointLoader.register_scheme(('http://', 'https://'), load_from_http, force=True)
    # torchvision://, openmmlab:// and others look up an address and call this by its name
    checkpoint.load_from_http = load_from_http
