"""How checkpoints get from files and names into mmengine, without executing what is in them."""

import logging
import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from mmengine.logging import print_log
from torch import Tensor

from mmbixt.checkpoints.download import cache_folder, fetch, remove_download
from mmbixt.checkpoints.errors import (
    BrokenCheckpointError,
    CheckpointFileError,
    DownloadError,
    UnsafeCheckpointError,
    UnsupportedContentError,
)
from mmbixt.checkpoints.layout import inspect_file
from mmbixt.checkpoints.sources import BY_ADDRESS, SCHEMES, UnknownSourceError, find, near_matches
from mmbixt.checkpoints.state_dict import CONTAINERS, unwrap
from mmbixt.checkpoints.unpickler import read
from mmbixt.checkpoints.xcit import convert_whole_xcit

TRUST = 'MMBIXT_TRUST_CHECKPOINTS'
_ADVICE = (
    f'If you wrote the file yourself, or trust whoever did, set {TRUST}=1 (our tools have '
    '--trust-checkpoint).'
)


def load(name: str, map_location: Any = None) -> Any:
    """A checkpoint by path, address or name; a whole model of the XCiT authors in our layout."""
    return convert_whole_model(read_source(name, map_location))


def convert_whole_model(checkpoint: Any) -> Any:
    """A checkpoint with its state dict in today's layout, if it is a whole model of other code.

    A module sees only its own weights when they are loaded: what moves to another, moves here.
    """
    converted = convert_whole_xcit(unwrap(checkpoint)) if isinstance(checkpoint, Mapping) else None
    if converted is None:
        return checkpoint
    text = 'The file is a whole model of the XCiT authors; its weights take the names of today.'
    print_log(text, 'current')
    weights = {*CONTAINERS, *(key for key in checkpoint if isinstance(checkpoint[key], Tensor))}
    rest = {key: value for key, value in checkpoint.items() if key not in weights}
    return {**rest, 'state_dict': converted.weights}


def read_file(filename: str, map_location: Any = None) -> Any:
    """What is in a checkpoint file, read safely unless the user trusts it explicitly."""
    path = Path(os.path.expanduser(filename))
    if not path.is_file():
        raise FileNotFoundError(f'There is no checkpoint file at {path}.')
    what, is_whole = f'{path} ({path.stat().st_size} bytes)', False
    is_trusted = os.environ.get(TRUST, '0') not in ('', '0')
    try:
        if is_trusted:
            return torch.load(path, map_location, weights_only=False)
        with path.open('rb') as file:
            inspect_file(file)
            is_whole = True
            return read(file, map_location)
    except UnsafeCheckpointError as error:
        raise UnsafeCheckpointError(
            f'{path} was not loaded: besides data it asks for {error}, and whatever a checkpoint '
            f'asks for is executed. {_ADVICE}'
        ) from None
    except (UnsupportedContentError, RecursionError) as error:
        holds = 'too many objects in one another' if isinstance(error, RecursionError) else error
        text = f'{path} was not loaded: it holds {holds}, which mmbixt does not read. {_ADVICE}'
        raise UnsupportedContentError(text) from None
    except OSError as error:
        raise OSError(error.errno, f'{what} cannot be read: {error.strerror or error}') from error
    except Exception as error:  # a damaged file can end in any
        reason = f'{type(error).__name__}: {str(error)[:300]}'
        # such as a device that is not there; and the code of a trusted file can do anything
        is_here = is_trusted or isinstance(error, MemoryError)
        if is_here or (is_whole and isinstance(error, RuntimeError)):
            raise CheckpointFileError(f'{what} cannot be loaded here: {reason}') from error
        text = f'{what} cannot be read as a checkpoint; it may be incomplete or something else: '
        raise BrokenCheckpointError(text + reason) from error


def read_source(name: str, map_location: Any = None) -> Any:
    """What is in the file behind a path, an address or a name of published weights.

    A download that turns out to be no checkpoint does not stay in the cache.
    """
    path = find_file(name)
    try:
        return read_file(str(path), map_location)
    except BrokenCheckpointError as error:
        if path == Path(os.path.expanduser(name)) or not remove_download(path):
            raise
        text = 'It had been downloaded and is removed; run again to download it anew.'
        raise CheckpointFileError(f'{error}\n  {text}') from error


def find_file(name: str) -> Path:
    """The file behind a path, an address or a name of ``mmbixt.checkpoints.sources``, fetched."""
    source = find(name) if name.startswith(SCHEMES) else BY_ADDRESS.get(name)
    if source is not None:
        return fetch(source.url, cache_folder() / source.file, source.is_zip, source.note)
    if name.startswith(('http://', 'https://')):
        unique = sha256(name.encode()).hexdigest()[:12]  # other addresses have files of this name
        file = PurePosixPath(name.partition('?')[0]).name[-50:]
        return fetch(name, cache_folder() / f'{unique}-{file}')
    return Path(os.path.expanduser(name))


def load_from_timm(filename: str, map_location: Any = None) -> Any:
    """Read timm's weights by its own download code, which executes nothing either, to the CPU."""
    import timm
    from timm.models import load_state_dict_from_hf

    name = filename.removeprefix('timm://')
    if not timm.is_model_pretrained(name):
        text = f'timm {timm.__version__} has no weights named {name!r}.'
        text += near_matches(name, timm.list_pretrained())
        raise UnknownSourceError(f'{text} `timm.list_pretrained()` lists all.')
    config = timm.get_pretrained_cfg(name)
    if config.custom_load:
        raise CheckpointFileError(f'{filename} is no file of torch, but in a format of its own.')
    if not config.hf_hub_id:
        return load(config.url, map_location)
    location = filter(None, (config.hf_hub_id, config.hf_hub_filename))
    try:
        return load_state_dict_from_hf(*location, weights_only=True)
    except Exception as error:  # what the hub's client raises differs from version to version
        raise DownloadError(
            f'timm could not get {filename} ({config.hf_hub_id} on the Hugging Face hub): '
            f'{type(error).__name__}: {error}\n  With a copy of the file, set '
            "init_cfg's checkpoint='/path/to/file.pth'."
        ) from error


def register_checkpoint_readers() -> None:
    """Make mmengine read files from disk, and published weights, through this module.

    mmengine's own reader of files cannot read mmengine's checkpoints with torch >= 2.6; its other
    schemes stay. Published weights are known by their names and addresses, which metafiles have.
    """
    from mmengine.runner.checkpoint import CheckpointLoader, load_from_local

    folders = {re.escape(url.rpartition('/')[0] + '/') for url in BY_ADDRESS}
    for prefix in ('', 'timm://', *SCHEMES, *folders):  # as mmengine has it, a regular expression
        reader = load_from_timm if prefix == 'timm://' else load
        registered = CheckpointLoader._schemes.get(prefix)
        if registered in (None, load_from_local):
            CheckpointLoader.register_scheme(prefix, reader, force=True)
        elif registered is not reader:
            what = f'Checkpoints {prefix}...' if prefix else 'Checkpoint files'
            theirs = f'{registered.__module__}.{registered.__qualname__}'
            print_log(f'{what} are read by {theirs}, not by mmbixt.', 'current', logging.WARNING)
