"""Read checkpoints from files, URLs and names for mmengine, without executing their content."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlparse

import torch
from safetensors.torch import load_file as load_safetensors

from mmbixt.checkpoints.download import cache_folder, fetch
from mmbixt.checkpoints.errors import CheckpointFileError
from mmbixt.checkpoints.sources import BY_ADDRESS, SCHEMES, find
from mmbixt.checkpoints.stand_ins import stand_ins
from mmbixt.checkpoints.state_dict import AVERAGED, CONTAINERS, container, rename_whole, unwrap

TIMM = 'timm://'
TRUST = 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'  # torch's environment variable


def load(name: str | Path, map_location: Any = None) -> Any:
    """A checkpoint by path, URL or name; whole models of the authors by mmbixt's names.

    Weights of ``timm://NAME`` are read by timm, on the CPU.
    """
    name = str(name)
    if name.startswith(TIMM):
        import timm  # takes seconds

        return timm.create_model(name.removeprefix(TIMM), pretrained=True).state_dict()
    checkpoint = read_file(find_file(name), map_location)
    if not isinstance(checkpoint, Mapping):
        return checkpoint
    weights = rename_whole(unwrap(checkpoint))
    is_averaged = container(checkpoint) in AVERAGED
    given = {} if is_averaged else checkpoint.get('state_dict', checkpoint)
    if not weights or weights.keys() == given.keys():
        return checkpoint
    # mmengine knows no other container, and looks for prefixes in the names themselves
    others = {
        key: value
        for key, value in checkpoint.items()
        if key not in CONTAINERS and not isinstance(value, torch.Tensor)
    }
    return {**others, 'state_dict': weights}


read = load  # how backbones read files; mmbixt.checkpoints.openmmlab replaces it


def load_weights(name: str | Path) -> Mapping[str, torch.Tensor]:
    """The weights of a checkpoint alone, on the CPU."""
    checkpoint = read(str(name), 'cpu')  # mmengine reads no Path
    return checkpoint.get('state_dict', checkpoint)


def read_file(path: str | Path, map_location: Any = None) -> Any:
    """The content of a file.

    torch reads data only, unless the user sets its variable :data:`TRUST` (which torch honours only
    if ``weights_only`` is not given).
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f'The checkpoint file {path} does not exist.')
    try:
        if path.suffix == '.safetensors':
            return load_safetensors(path)
        with stand_ins():
            return torch.load(path, map_location)
    except OSError:
        raise
    except Exception as error:  # a damaged file can raise any error
        reason = _reason(error)
        advice = 'It may be incomplete, or not a checkpoint.'
        if 'GLOBAL' in reason:
            advice = (
                'It contains more than data, and reading that could execute code. If you trust its '
                f'author, set the environment variable {TRUST}=1.'
            )
        elif path.parent == cache_folder():
            advice += ' If it was a download, remove it and run again.'
        text = f'{path} cannot be read: {type(error).__name__}: {reason}\n  {advice}'
        raise CheckpointFileError(text) from error


def _reason(error: Exception) -> str:
    """The message of an error, in torch's safe reader the last line before its advice."""
    text = str(error).partition('Check the documentation')[0].strip()
    if text.startswith('Weights only load failed'):
        text = text.splitlines()[-1].strip().removeprefix('WeightsUnpickler error: ')
    return text.partition(' Please ')[0][:300]


def find_file(name: str) -> Path:
    """The file of a path, a URL or a name of ``mmbixt.checkpoints.sources``, downloaded."""
    source = find(name) if name.startswith(SCHEMES) else BY_ADDRESS.get(name)
    if source is not None:
        return fetch(source.url, source.file, source.is_zip, source.note)
    if name.startswith(('http://', 'https://')):
        address = sha256(name.encode()).hexdigest()[:8]  # other URLs may have files of this name
        return fetch(name, f'{address}-{PurePosixPath(urlparse(name).path).name}')
    return Path(name)
