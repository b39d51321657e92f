"""Download files into torch hub's cache."""

import os
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import pooch
from torch import hub

from mmbixt.checkpoints.errors import CheckpointFileError
from mmbixt.checkpoints.sources import hash_in

_SUFFIXES = ('.pth', '.pt', '.pth.tar', '.bin', '.ckpt')


def cache_folder() -> Path:
    """Torch hub's cache, which may hold the file already."""
    return Path(hub.get_dir()) / 'checkpoints'


def fetch(url: str, name: str, is_zip: bool = False, note: str = '') -> Path:
    """The file of this name in the cache, downloaded if it is not there.

    With ``is_zip`` the checkpoint is unpacked from a zip archive. ``note`` is added to errors.
    """
    path = cache_folder() / name
    try:
        if path.is_file():
            _check_hash(path, '' if is_zip else hash_in(url))
        else:
            _download(url, path, is_zip)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        unpacked = ' (unpacked)' if is_zip else ''
        lines = (
            f'{url} cannot be downloaded: {error}',
            note,
            f'If you have a copy of the file, put it{unpacked} at {path}, or its path in init_cfg '
            "(checkpoint='/path/to/file.pth'). For random weights: init_cfg=None, also in necks.",
        )
        raise CheckpointFileError('\n  '.join(filter(None, lines))) from error
    return path


def _download(url: str, path: Path, is_zip: bool) -> None:
    """Put a complete file at ``path``; several processes may do so at once."""
    get = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        chunk_size=1 << 18,
        timeout=(5, 30),  # seconds to connect to an address of the host, and without data
        headers={'User-Agent': 'mmbixt'},
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent) as folder:
        file = pooch.retrieve(url, None, path.name, folder, downloader=get)
        _check_hash(file, hash_in(url))
        os.replace(_unpack(file) if is_zip else file, path)


def _check_hash(file: str | Path, digits: str) -> None:
    """Published names have the first digits of a hash; pooch compares only whole ones."""
    if digits and not pooch.file_hash(str(file)).startswith(digits):
        raise ValueError(f'the sha256 of {file} must begin with {digits}')


def _unpack(archive: str) -> str:
    """The checkpoint of a zip archive."""
    files = pooch.Unzip()(archive, 'download', None)
    # archives may contain hidden files of file managers
    checkpoints = [x for x in files if x.endswith(_SUFFIXES) and not Path(x).name.startswith('.')]
    if len(checkpoints) != 1:
        raise ValueError(f'the archive must contain one checkpoint, not {len(checkpoints)}')
    return checkpoints[0]
