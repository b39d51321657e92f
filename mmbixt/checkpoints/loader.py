"""Read checkpoints from files, URLs and names for mmengine, without executing their content."""

import logging
import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from mmengine.logging import print_log
from safetensors.torch import load_file as load_safetensors
from torch import Tensor

from mmbixt.checkpoints.adapters import notes_of
from mmbixt.checkpoints.download import cache_folder, fetch, remove_download
from mmbixt.checkpoints.errors import (
    BrokenCheckpointError,
    CheckpointFileError,
    DownloadError,
    UnsafeCheckpointError,
    UnsupportedContentError,
)
from mmbixt.checkpoints.layout import inspect_file
from mmbixt.checkpoints.origin import remember
from mmbixt.checkpoints.sources import BY_ADDRESS, SCHEMES, UnknownSourceError, find, near_matches
from mmbixt.checkpoints.state_dict import CONTAINERS, shorten, unwrap
from mmbixt.checkpoints.unpickler import read
from mmbixt.checkpoints.xcit import convert_whole_xcit

TRUST = 'MMBIXT_TRUST_CHECKPOINTS'
_ADVICE = (
    f'If you wrote the file yourself, or trust its author, set {TRUST}=1 (or --trust-checkpoint '
    'of our tools).'
)


def load(name: str, map_location: Any = None) -> Any:
    """A checkpoint by path, URL or name; whole models of the XCiT authors in our layout."""
    checkpoint = convert_whole_model(read_source(name, map_location))
    if not isinstance(checkpoint, Mapping):
        return checkpoint
    weights = unwrap(checkpoint)
    _warn_of_nan(weights, name)
    remember(weights, name, notes_of(checkpoint))
    # mmengine removes ``prefix`` from names that have no prefixes of wrappers
    if not weights or weights.keys() <= checkpoint.get('state_dict', checkpoint).keys():
        return checkpoint
    return _with_weights(checkpoint, weights)


def _warn_of_nan(weights: Mapping[str, Tensor], name: str) -> None:
    floats = {key: x for key, x in weights.items() if x.is_floating_point() and not x.is_meta}
    if wrong := [key for key, x in floats.items() if x.isnan().any()]:
        text = f'{name} has NaN in {len(wrong)} of {len(weights)} weights: {shorten(wrong)}.'
        print_log(text, 'current', logging.WARNING)


def _with_weights(checkpoint: Mapping, weights: Mapping[str, Tensor]) -> dict:
    """A checkpoint with these weights under 'state_dict'."""
    rest = {key: value for key, value in checkpoint.items() if not isinstance(value, Tensor)}
    return {**rest, 'state_dict': weights}


def convert_whole_model(checkpoint: Any) -> Any:
    """A checkpoint with its state dict in our layout, if it is a whole model of the XCiT authors.

    When a state dict is loaded, each module gets only the weights with its own prefix. Weights that
    belong to another module in our layout are renamed here.
    """
    converted = convert_whole_xcit(unwrap(checkpoint)) if isinstance(checkpoint, Mapping) else None
    if converted is None:
        return checkpoint
    print_log('The file is a whole model of the XCiT authors; its weights are renamed.', 'current')
    return _with_weights(checkpoint, converted.weights)


def read_file(filename: str, map_location: Any = None) -> Any:
    """The content of a checkpoint file, read safely unless the user trusts it explicitly."""
    path = Path(os.path.expanduser(filename))
    if not path.is_file():
        what = ', which is a folder' if path.is_dir() else ''
        raise FileNotFoundError(f'There is no checkpoint file at {path}{what}.')
    what, is_whole = f'{path} ({path.stat().st_size} bytes)', False
    is_trusted = os.environ.get(TRUST, '0') not in ('', '0')
    try:
        if path.suffix == '.safetensors':
            return load_safetensors(path)
        if is_trusted:
            return torch.load(path, map_location, weights_only=False)
        with path.open('rb') as file:
            inspect_file(file)
            is_whole = True
            return read(file, map_location)
    except UnsafeCheckpointError as error:
        raise UnsafeCheckpointError(
            f'{path} was not loaded: besides data it contains {error}, and loading that could '
            f'execute code. {_ADVICE}'
        ) from None
    except (UnsupportedContentError, RecursionError) as error:
        what = 'too many nested objects' if isinstance(error, RecursionError) else error
        text = f'{path} was not loaded: it contains {what}, which mmbixt does not read. {_ADVICE}'
        raise UnsupportedContentError(text) from None
    except OSError as error:
        raise OSError(error.errno, f'{what} cannot be read: {error.strerror or error}') from error
    except Exception as error:  # a damaged file can raise any error
        reason = f'{type(error).__name__}: {str(error)[:300]}'
        # too little memory, a missing device (RuntimeError), or any error of a trusted file's code
        is_local = is_trusted or isinstance(error, MemoryError)
        if is_local or (is_whole and isinstance(error, RuntimeError)):
            raise CheckpointFileError(f'{what} cannot be loaded here: {reason}') from error
        text = f'{what} cannot be read: it may be incomplete, or may not be a checkpoint: '
        raise BrokenCheckpointError(f'{text}{reason}. Download or copy it again.') from error


def read_source(name: str, map_location: Any = None) -> Any:
    """The content of a checkpoint by path, URL or name of published weights.

    A download that cannot be read is removed from the cache.
    """
    path = find_file(name)
    try:
        checkpoint = read_file(str(path), map_location)
    except BrokenCheckpointError as error:
        if path == Path(os.path.expanduser(name)) or not remove_download(path):
            raise
        text = 'It was a download and has been removed; run again to download it again.'
        raise CheckpointFileError(f'{error}\n  {text}') from error
    parts = checkpoint if isinstance(checkpoint, Mapping) else {}
    held = [repr(key) for key in CONTAINERS if isinstance(parts.get(key), Mapping)]
    if len(held) > 1:  # of which unwrap takes the first
        print_log(f'{name}: {held[0]} is used, not {" or ".join(held[1:])}.', 'current')
    return checkpoint


def find_file(name: str) -> Path:
    """The file of a path, a URL or a name of ``mmbixt.checkpoints.sources``, downloaded."""
    source = find(name) if name.startswith(SCHEMES) else BY_ADDRESS.get(name)
    if source is not None:
        return fetch(source.url, cache_folder() / source.file, source.is_zip, source.note)
    if name.startswith(('http://', 'https://')):
        unique = sha256(name.encode()).hexdigest()[:12]  # other URLs may have files of this name
        file = PurePosixPath(name.partition('?')[0]).name[-50:]
        return fetch(name, cache_folder() / f'{unique}-{file}')
    return Path(os.path.expanduser(name))


def load_from_timm(filename: str, map_location: Any = None) -> Any:
    """Read timm's weights to the CPU by timm's download code, which executes no content either."""
    import timm
    from timm.models import load_state_dict_from_hf

    name = filename.removeprefix('timm://')
    if not timm.is_model_pretrained(name):
        text = f'timm {timm.__version__} has no weights named {name!r}.'
        text += near_matches(name, timm.list_pretrained())
        raise UnknownSourceError(f'{text} `timm.list_pretrained()` lists all.')
    config = timm.get_pretrained_cfg(name)
    if config.custom_load:
        raise CheckpointFileError(f'{filename} has its own format and cannot be read by torch.')
    if not config.hf_hub_id:
        return load(config.url, map_location)
    location = filter(None, (config.hf_hub_id, config.hf_hub_filename))
    try:
        state = load_state_dict_from_hf(*location, weights_only=True)
    except Exception as error:  # errors of the hub's client differ between versions
        raise DownloadError(
            f'timm could not download {filename} ({config.hf_hub_id} on the Hugging Face hub): '
            f'{type(error).__name__}: {error}\n  If you have a copy of the file, '
            "give its path instead (init_cfg's checkpoint='/path/to/file.pth')."
        ) from error
    remember(state, filename)
    return state


def register_checkpoint_readers() -> None:
    """Make mmengine read files, and published weights by name or URL, through this module.

    mmengine's own file reader cannot read mmengine's checkpoints with torch >= 2.6. Its readers of
    other schemes are kept.
    """
    from mmengine.runner.checkpoint import CheckpointLoader, load_from_local

    folders = {re.escape(url.rpartition('/')[0] + '/') for url in BY_ADDRESS}
    for prefix in ('', 'timm://', *SCHEMES, *folders):  # regular expressions
        reader = load_from_timm if prefix == 'timm://' else load
        registered = CheckpointLoader._schemes.get(prefix)
        if registered in (None, load_from_local):
            CheckpointLoader.register_scheme(prefix, reader, force=True)
        elif registered is not reader:
            what = f'Checkpoints {prefix}...' if prefix else 'Checkpoint files'
            theirs = f'{registered.__module__}.{registered.__qualname__}'
            print_log(f'{what} are read by {theirs}, not by mmbixt.', 'current', logging.WARNING)
