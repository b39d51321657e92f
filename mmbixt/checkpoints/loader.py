"""mmengine's checkpoint readers, replaced by ones that execute nothing from the file."""

import os
import pickle
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlparse

import torch

from mmbixt.checkpoints.download import (
    CheckpointFileError,
    DownloadError,
    cache_path,
    fetch,
    forget_download,
)
from mmbixt.checkpoints.sources import SCHEMES, UnknownSourceError, find, near_matches
from mmbixt.checkpoints.unpickler import SafePickle, UnsafeCheckpointError
from mmbixt.checkpoints.whole_models import convert_whole_model

TRUST = 'MMBIXT_TRUST_CHECKPOINTS'


def load_from_local(filename: str, map_location: Any = None) -> Any:
    """Read a checkpoint file; a whole model of other code comes out in today's layout.

    Args:
        filename: path of a file that ``torch.save`` wrote.
        map_location: as in ``torch.load``.
    """
    return convert_whole_model(read_file(filename, map_location))


def read_file(filename: str, map_location: Any = None) -> Any:
    """What is in a checkpoint file, read safely unless the user trusts it explicitly."""
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
            f'{TRUST}=1 (our tools have --trust-checkpoint).'
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
    return _load_download(find_file(filename, model_dir, progress), map_location)


def _cache_name(url: str) -> str:
    """As torch hub names it; where the last part of the address is no file name, made unique."""
    name = Path(urlparse(url).path).name
    return name if '.' in name else f'{sha256(url.encode()).hexdigest()[:12]}-{name}'


def load_from_name(filename: str, map_location: Any = None) -> Any:
    """Read weights that their authors publish, by their name in ``mmbixt.checkpoints.sources``."""
    return _load_download(find_file(filename), map_location)


def _load_download(path: Path, map_location: Any) -> Any:
    """Read what has been fetched; what turns out to be no checkpoint must not stay in the cache."""
    try:
        return load_from_local(str(path), map_location)
    except CheckpointFileError as error:
        if not forget_download(path):
            raise
        text = 'It had been downloaded and is removed; run again to download it anew.'
        raise CheckpointFileError(f'{error}\n  {text}') from error


def find_file(name: str, model_dir: str | None = None, progress: bool = True) -> Path:
    """The file behind a path, an address or a name of ``mmbixt.checkpoints.sources``, fetched."""
    if name.startswith(SCHEMES):
        source = find(name)
        path = cache_path(source.url, source.file, model_dir)
        return fetch(source.url, path, source.sha256, source.is_zip, source.note, progress)
    if name.startswith(('http://', 'https://')):
        return fetch(name, cache_path(name, _cache_name(name), model_dir), progress=progress)
    return Path(name).expanduser()


def load_from_timm(filename: str, map_location: Any = None) -> Any:
    """Read timm's weights by timm's own download code, which executes nothing from them either.

    Args:
        filename: ``'timm://'`` and a name of ``timm.list_pretrained()``.
        map_location: has no effect: timm reads weights to the CPU.
    """
    import timm
    from timm.models import load_state_dict_from_hf

    name = filename.removeprefix('timm://')
    if not timm.is_model_pretrained(name):
        near = near_matches(name, timm.list_pretrained())
        raise UnknownSourceError(
            f'timm {timm.__version__} has no weights named {name!r}.{near} '
            '`timm.list_pretrained()` lists all.'
        )
    config = timm.get_pretrained_cfg(name)
    if config.custom_load:
        raise CheckpointFileError(f'{filename} is no file of torch, but in a format of its own.')
    if not config.hf_hub_id:
        return load_from_http(config.url, map_location)
    location = filter(None, (config.hf_hub_id, config.hf_hub_filename))
    try:
        return load_state_dict_from_hf(*location, weights_only=True)
    except Exception as error:  # what the hub's client raises differs from version to version
        raise DownloadError(
            f'timm could not get {filename} ({config.hf_hub_id} on the Hugging Face hub): '
            f'{type(error).__name__}: {error}\n  With a copy of the file, give its path as the '
            "checkpoint: init_cfg=dict(type='Pretrained', checkpoint='/path/to/file.pth')."
        ) from error


def register_checkpoint_readers() -> None:
    """Make mmengine's runners and ``init_cfg`` read files through this module."""
    from mmengine.runner import CheckpointLoader, checkpoint

    CheckpointLoader.register_scheme('', load_from_local, force=True)
    CheckpointLoader.register_scheme(('http://', 'https://'), load_from_http, force=True)
    CheckpointLoader.register_scheme(SCHEMES, load_from_name, force=True)
    CheckpointLoader.register_scheme('timm://', load_from_timm, force=True)
    # torchvision://, openmmlab:// and others look up an address and call this by its name
    checkpoint.load_from_http = load_from_http
