"""Download files; a file gets its name in the cache only when it is complete and its hash matches.

Beside ``model.pth`` there are ``model.pth.json``, with its URL and size, and ``.model.pth.lock``.
The operating system releases the lock when the downloading process ends, even after a crash.
"""

import io
import json
import logging
import os
import shutil
import sys
import time
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path, PurePosixPath

import pooch
import requests
from filelock import FileLock
from mmengine.logging import print_log
from torch import hub

from mmbixt.checkpoints.errors import DownloadError
from mmbixt.checkpoints.sources import hash_in

LARGEST = 4 << 30  # bytes of a download, and of the file unpacked from it
PAUSES = (1, 4)  # seconds before each retry after a connection error
TIMEOUT = 30  # seconds without data
_SUFFIXES = ('.pth', '.pt', '.pth.tar', '.bin', '.ckpt')


def cache_folder() -> Path:
    """Torch hub's cache, which may hold the file already."""
    return Path(hub.get_dir()) / 'checkpoints'


def fetch(url: str, path: Path, is_zip: bool = False, note: str = '') -> Path:
    """Download a file to ``path`` unless it exists; several processes may call this at once.

    With ``is_zip`` the checkpoint is unpacked from a zip archive. ``note`` is added to errors.
    """
    sha256 = hash_in(url)
    known = '' if is_zip else sha256  # hash of the file at ``path``
    try:
        if not _is_ready(url, path, known):
            path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(path.with_name(f'.{path.name}.lock')):
                if not _is_ready(url, path, known):  # another process may have downloaded it
                    _download(url, path, sha256, is_zip)
    except DownloadError as error:
        unpacked = ' (unpacked)' if is_zip else ''
        advice = (
            "If you have a copy of the file, give its path instead (init_cfg's "
            f"checkpoint='/path/to/file.pth'), or copy it{unpacked} to {path}. To train a backbone "
            'from random weights, set init_cfg=None.'
        )
        what = f'{url} was not downloaded: {error}.'
        raise DownloadError('\n  '.join(filter(None, [what, note, advice]))) from error
    except (OSError, NotImplementedError) as error:  # a full disk, or one without locks
        text = f'{path} cannot be written: {getattr(error, "strerror", None) or error}. Free some '
        text += 'space and run again, or set the variable TORCH_HOME to another folder'
        raise OSError(getattr(error, 'errno', None), text) from error
    return path


def remove_download(path: Path) -> bool:
    """Remove a file that cannot be read, if it was downloaded, and is not a file of the user."""
    record = _record(path)
    if is_download := record.is_file():
        path.unlink(missing_ok=True)
        record.unlink(missing_ok=True)
    return is_download


def _record(path: Path) -> Path:
    return path.with_name(f'{path.name}.json')


def _is_ready(url: str, path: Path, sha256: str) -> bool:
    """Whether the file exists, with the size that it had when its hash was compared.

    A file without a record is from torch hub or the user. If its hash matches, it gets a record.
    """
    if not path.is_file():
        return False
    size = path.stat().st_size
    with suppress(OSError, ValueError, TypeError):  # no record, or not written by mmbixt
        if record := dict(json.loads(_record(path).read_text())):
            return size == record.get('size')
    if sha256 and not pooch.file_hash(path).startswith(sha256):
        text = f'{path} is another file: its sha256 does not begin with {sha256}. mmbixt did not '
        raise DownloadError(text + 'write it and does not replace it: move it and run again')
    if sha256 and os.access(path.parent, os.W_OK):  # else the hash is computed each time
        _record(path).write_text(json.dumps(dict(url=url, size=size)))
    return True


def _download(url: str, path: Path, sha256: str, is_zip: bool) -> None:
    if path.exists():
        print_log(f'{path} has changed since its download.', 'current', logging.WARNING)
    print_log(f'Downloading {url} to {path}', 'current')
    path.unlink(missing_ok=True)
    part, unpacked = (path.with_name(f'{path.name}.{what}') for what in ('part', 'unpacked'))
    try:
        _transfer(url, part)
        digest = pooch.file_hash(part)
        if not digest.startswith(sha256):
            raise DownloadError(f'its sha256 is {digest} and should begin with {sha256}')
        ready = unpacked if is_zip and _unpack(part, unpacked) else part
        record = dict(url=url, size=ready.stat().st_size)
        _record(path).write_text(json.dumps(record))
        os.replace(ready, path)
    finally:
        part.unlink(missing_ok=True)
        unpacked.unlink(missing_ok=True)


class _LimitedFile(io.BufferedWriter):
    """A file with a maximal size, because servers may state a wrong one."""

    def write(self, content: bytes) -> int:
        if self.tell() + len(content) > LARGEST:
            raise DownloadError(f'the file is larger than {LARGEST >> 20} MiB')
        return super().write(content)


def _transfer(url: str, part: Path) -> None:
    """Download ``url`` to the file ``part``, over http or https."""
    if not url.lower().startswith(('http://', 'https://')):
        raise DownloadError('the URL does not begin with http:// or https://')
    get = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        chunk_size=1 << 18,
        timeout=TIMEOUT,
        headers={'User-Agent': 'mmbixt', 'Accept-Encoding': 'identity'},
        hooks={'response': lambda response, **_: _check_response(url, response)},
    )
    for pause in (*PAUSES, None):
        try:
            with _LimitedFile(io.FileIO(part, 'wb')) as file:
                return get(url, file, None)
        except requests.RequestException as error:
            status = getattr(error.response, 'status_code', 500)
            if pause is None or (status < 500 and status not in (408, 429)):
                raise DownloadError(str(error)) from error
            time.sleep(pause)
        except ValueError as error:  # a malformed URL or header
            raise DownloadError(str(error)) from error


def _check_response(url: str, response: requests.Response) -> None:
    """Refuse HTML pages (sign-in forms, captchas), which servers send with status 200."""
    kind = response.headers.get('Content-Type', '')
    if url.startswith('https:') and not response.url.startswith('https:'):
        raise DownloadError(f'it redirects to {response.url}, which is not protected by https')
    if response.ok and not response.is_redirect and (response.status_code != 200 or 'html' in kind):
        raise DownloadError(f'the server sent no file: status {response.status_code} with {kind}')


def _unpack(archive: Path, target: Path) -> bool:
    """Write the checkpoint in a published zip archive to ``target``.

    Returns False, and writes nothing, if the archive itself is a checkpoint of ``torch.save``.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            files = {PurePosixPath(i.filename): i for i in opened.infolist() if not i.is_dir()}
            if any(path.name == 'data.pkl' and len(path.parts) == 2 for path in files):
                return False
            # file managers add hidden files
            found = [p for p in files if p.name.endswith(_SUFFIXES) and p.name[0] != '.']
            if len(found) != 1:
                names = ', '.join(map(str, files)) or 'nothing'
                raise DownloadError(f'it holds {len(found)} checkpoints among {names}')
            member = files[found[0]]
            if member.file_size > LARGEST:  # zipfile reads no more than the stated size
                raise DownloadError(f'{member.filename} is larger than {LARGEST >> 20} MiB')
            with opened.open(member) as source, target.open('wb') as file:
                shutil.copyfileobj(source, file)  # compares the checksum
        return True
    # errors of zipfile for archives that are damaged, truncated, encrypted or of unknown method
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DownloadError(f'it should be a zip archive of one checkpoint: {error}') from error
