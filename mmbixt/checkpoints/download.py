"""Downloading files so that whatever is interrupted, raced or altered, only a right one is read.

A file gets its name in the cache only when it is whole and verified. Beside ``model.pth`` there are

- ``model.pth.json``: its address, size and sha256, against which it is verified before each use;
- ``model.pth.part`` and ``model.pth.part.json``, while it comes: what a killed run has got so far,
  and by what mark the server knows it, so that the next run goes on there;
- ``.model.pth.lock``: held by the process that downloads. The system lets go of it when the process
  ends, however it ends, so that no process waits for one that has failed.
"""

import json
import logging
import os
import re
import shutil
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256 as new_sha256
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from mmengine.logging import print_log
from torch import hub
from tqdm import tqdm

PAUSES = (1, 4)  # seconds before a broken connection is tried again
TIMEOUT = 30  # seconds without a byte
_CHUNK = 1 << 18
_SUFFIXES = ('.pth', '.pt', '.pth.tar', '.bin', '.ckpt')
# `name-1cdeb081.pth`, as torch and OpenMMLab name files after their content; digits alone may be a
# date or a count of iterations
_HASH = re.compile(r'-(?=\d*[a-f])([0-9a-f]{8,64})(\.[a-z]+)+$')


class CheckpointFileError(RuntimeError):
    """The file is no checkpoint, or a broken one."""


class DownloadError(CheckpointFileError):
    """The file cannot be had."""


class _BrokenOffError(Exception):
    """The connection failed in a way that may be over soon."""


def cache_folder() -> Path:
    """Torch hub's cache, so that what is there already is used."""
    return Path(hub.get_dir()) / 'checkpoints'


def cache_path(url: str, name: str, folder: str | Path | None = None) -> Path:
    """Where a download is kept.

    Args:
        url: its address; if another one's file has the name already, the path is made unique.
        name: name of the file.
        folder: the cache to use in place of torch hub's.
    """
    path = Path(folder or cache_folder()) / name
    if _read_json(_record(path)).get('url', url) != url:
        path = path.with_name(f'{new_sha256(url.encode()).hexdigest()[:12]}-{name}')
    return path


def fetch(
    url: str,
    path: Path,
    sha256: str | None = None,
    is_zip: bool = False,
    note: str = '',
    progress: bool = True,
) -> Path:
    """A file from http or https, downloaded unless it is there; any number of processes may ask.

    Args:
        url: its address.
        path: where to keep it.
        sha256: how the download's sha256 begins. Without it, a download, but not a file that was
            in the cache before, is compared with the hash in its published name.
        is_zip: whether the download is a zip archive around one checkpoint, which is then kept.
        note: what the user should know if it fails.
        progress: whether to draw a bar, if there is a terminal to draw it on.

    Returns:
        The path.
    """
    known = None if is_zip else sha256  # of the file that is kept
    try:
        if not _is_intact(path, known):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _lock(path):
                if not _is_intact(path, known):  # no other process has been quicker
                    _remove_altered(path)
                    _download(url, _part(path), progress)
                    _keep(url, path, sha256 or _hash_in_name(url), is_zip)
    except CheckpointFileError as error:
        unpacked = ' (unpacked)' if is_zip else ''
        advice = (
            'With a copy of the file, give its path as the checkpoint (init_cfg=dict('
            f"type='Pretrained', checkpoint='/path/to/file.pth')) or put it{unpacked} at {path}."
        )
        raise DownloadError('\n  '.join(filter(None, [str(error), note, advice]))) from error
    return path


def forget_download(path: Path) -> bool:
    """Remove a file that cannot be read, if it is a download and not somebody's own."""
    record = _record(path)
    if not record.is_file():
        return False
    path.unlink(missing_ok=True)
    record.unlink()
    return True


def _hash_in_name(url: str) -> str | None:
    match = _HASH.search(urlparse(url).path)
    return match and match[1]


def _record(path: Path) -> Path:
    return path.with_name(f'{path.name}.json')


def _part(path: Path) -> Path:
    return path.with_name(f'{path.name}.part')


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def _digest(path: Path) -> str:
    digest = new_sha256()
    with path.open('rb') as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _is_intact(path: Path, sha256: str | None) -> bool:
    """Whether the file is there, as it was when it came.

    A file without a record was put there by torch hub or by the user: it is taken as it is unless
    its hash is known to be another.
    """
    if not path.is_file():
        return False
    record = _read_json(_record(path))
    try:
        if record:
            is_same_size = path.stat().st_size == record.get('size')
            return is_same_size and _digest(path) == record.get('sha256')
        if sha256 is None or _digest(path).startswith(sha256):
            return True
    except FileNotFoundError:  # another process has just removed it
        return False
    raise DownloadError(
        f'{path} is not the published file: its sha256 does not begin with {sha256}. mmbixt did '
        'not download it and leaves it alone: move it away and run again.'
    )


def _remove_altered(path: Path) -> None:
    if path.exists():
        text = f'{path} is not what was downloaded any more; it is removed and downloaded again.'
        print_log(text, 'current', logging.WARNING)
        path.unlink()


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    import fcntl  # Windows lacks it

    with path.with_name(f'.{path.name}.lock').open('w') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print_log(f'Waiting for another process, which downloads {path.name}.', 'current')
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise OSError(
                error.errno,
                f'{path.parent} is on a file system without locks ({error.strerror}); let the '
                'variable TORCH_HOME name a folder on another one',
            ) from error
        yield


def _download(url: str, part: Path, progress: bool) -> None:
    """The whole file into ``part``; where a connection breaks, the next goes on."""
    print_log(f'Downloading {url} to {part.parent}', 'current')
    for pause in (*PAUSES, None):
        try:
            return _transfer(url, part, progress)
        except _BrokenOffError as error:
            if pause is None:
                size = part.stat().st_size if part.exists() else 0
                kept = f' {size} bytes are kept in {part}.' if size else ''
                raise DownloadError(
                    f'The connection to {url} broke off: {error}.{kept} Run again to go on.'
                ) from error
            time.sleep(pause)


def _transfer(url: str, part: Path, progress: bool) -> None:
    """One connection's worth of the file, behind what is there already."""
    start, mark, expected = _received(url, part)
    response = _connect(url, {'Range': f'bytes={start}-', 'If-Range': mark} if start else {})
    if response.status == 200:  # the whole: it is another file by now, or the server cannot go on
        start = 0
    elif not _goes_on(response, start, mark, expected):
        _forget(part)
        raise _BrokenOffError('the server does not go on with the same file')
    if response.status == 416:  # nothing was missing
        return
    total = _total_size(response)
    if total == 0:
        raise DownloadError(f'{url} gives an empty file.')
    with _writing(part), response, part.open('ab' if start else 'wb') as file:
        if not start:
            known = dict(url=url, mark=_mark(response), total=total)
            _record(part).write_text(json.dumps(known))
        # one process downloads, so there is one bar; none where it would fill a log file
        quiet = None if progress else True
        look = dict(desc=part.stem, disable=quiet, unit='B', unit_scale=True, unit_divisor=1024)
        with tqdm(total=total, initial=start, **look) as bar:
            for chunk in _chunks(response):
                file.write(chunk)
                bar.update(len(chunk))
    size = part.stat().st_size
    if total is not None and size < total:
        raise _BrokenOffError(f'{size} of {total} bytes came')


def _received(url: str, part: Path) -> tuple[int, str | None, int | None]:
    """How much of the file has come, the server's mark of that version of it, and its size."""
    record = _read_json(_record(part))
    if record.get('url') != url or not record.get('mark') or not part.is_file():
        return 0, None, None
    return part.stat().st_size, record['mark'], record.get('total')


def _connect(url: str, headers: dict[str, str]) -> HTTPResponse | HTTPError:
    """The answer to a request: all of a file, a range of it, or that it ends before the range."""
    schemes = ('https',) if urlparse(url).scheme == 'https' else ('http', 'https')
    if urlparse(url).scheme not in schemes:
        raise DownloadError(f'{url} is no address of http or https.')
    try:
        plain = {'User-Agent': 'mmbixt', 'Accept-Encoding': 'identity'}
        request = Request(url, headers={**plain, **headers})
        response = urlopen(request, timeout=TIMEOUT)
    except HTTPError as error:
        if error.code == 416 and headers:
            return error
        if error.code in (408, 429) or error.code >= 500:
            raise _BrokenOffError(f'the server answers {error.code} {error.reason}') from error
        raise DownloadError(f'{url}: the server answers {error.code} {error.reason}.') from error
    except URLError as error:
        raise DownloadError(f'{url} cannot be reached: {error.reason}.') from error
    except (OSError, HTTPException) as error:
        raise _BrokenOffError(f'{type(error).__name__}: {error}') from error
    if urlparse(response.url).scheme not in schemes:
        raise DownloadError(f'{url} leads to {response.url}, which is no address to download from.')
    # sign-in pages and checks for robots come with a cheerful status
    if response.status not in (200, 206) or response.headers.get_content_type() == 'text/html':
        raise DownloadError(
            f'{url} gives no file: the server answers {response.status} {response.reason} with '
            f'{response.headers.get_content_type()}.'
        )
    encoding = response.headers.get('Content-Encoding', 'identity')
    if encoding != 'identity':
        raise DownloadError(f'{url} gives the file only in the encoding {encoding!r}.')
    return response


def _mark(response: HTTPResponse | HTTPError) -> str | None:
    """By what the server tells this version of the file from others, byte by byte."""
    tag = response.headers.get('ETag', '')
    return tag if tag.startswith('"') else response.headers.get('Last-Modified')


def _goes_on(
    response: HTTPResponse | HTTPError, start: int, mark: str | None, total: int | None
) -> bool:
    """Whether an answer is the rest of the same file, or says that there is none."""
    position = response.headers.get('Content-Range', '')
    if response.status == 416:
        return position == f'bytes */{start}' and total in (start, None)
    if total is not None and _total_size(response) not in (total, None):
        return False
    return position.startswith(f'bytes {start}-') and _mark(response) in (mark, None)


def _total_size(response: HTTPResponse) -> int | None:
    """The whole file's size, if the server says it."""
    if response.status == 200:
        size = response.headers.get('Content-Length', '')
    else:
        size = response.headers.get('Content-Range', '').rpartition('/')[2]
    return int(size) if size.isdecimal() else None


def _chunks(response: HTTPResponse) -> Iterator[bytes]:
    try:
        while chunk := response.read(_CHUNK):
            yield chunk
    except (OSError, HTTPException) as error:
        raise _BrokenOffError(f'{type(error).__name__}: {error}') from error


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Say what to do about a full disk."""
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno,
            f'{path} cannot be written: {error.strerror}. What came is kept: make room and run '
            'again to go on, or let the variable TORCH_HOME name a folder elsewhere',
        ) from error


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _record(part).unlink(missing_ok=True)


def _keep(url: str, path: Path, sha256: str | None, is_zip: bool) -> None:
    """Verify what came, and give it its name; remove it if it is not right."""
    part = _part(path)
    digest = _digest(part)
    try:
        if sha256 is not None and not digest.startswith(sha256):
            raise DownloadError(
                f'{url} sent {part.stat().st_size} bytes with the sha256 {digest}, which should '
                f'begin with {sha256}: altered, or another file. They were removed.'
            )
        ready = _unpack(url, part, path.with_name(f'{path.name}.unpacked')) if is_zip else part
    except CheckpointFileError:
        _forget(part)
        raise
    record = dict(url=url, size=ready.stat().st_size, sha256=_digest(ready) if is_zip else digest)
    with _writing(path):
        _record(path).write_text(json.dumps(record, indent=1))
        os.replace(ready, path)
    _forget(part)


def _unpack(url: str, archive: Path, target: Path) -> Path:
    """The one checkpoint in a zip archive that came from ``url``, written to ``target``.

    A checkpoint of torch is a zip archive too: if the download is one, that is what is returned.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            member = _checkpoint_in(opened)
            if member is None:
                return archive
            _extract(opened, member, target)
        return target
    # how zipfile fails on archives that are damaged, cut off, of an unknown method or encrypted;
    # the last is also that of an archive without exactly one checkpoint
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise CheckpointFileError(
            f'{url} sent {archive.stat().st_size} bytes that should be a zip archive around one '
            f'checkpoint: {error}. They were removed.'
        ) from error


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    try:
        with _writing(target), archive.open(member) as source, target.open('wb') as file:
            shutil.copyfileobj(source, file, _CHUNK)  # compares the member's checksum
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _checkpoint_in(archive: zipfile.ZipFile) -> zipfile.ZipInfo | None:
    """The member that is a checkpoint; None if the archive is one itself."""
    members = {}
    for info in archive.infolist():
        path = PurePosixPath(info.filename)
        is_leaving = path.name.startswith('.') or '__MACOSX' in path.parts  # of a file manager
        if not info.is_dir() and not is_leaving:
            members[path] = info
    if any(path.name == 'data.pkl' and len(path.parts) == 2 for path in members):
        return None
    checkpoints = [path for path in members if path.name.endswith(_SUFFIXES)]
    if len(checkpoints) != 1:
        names = ', '.join(map(str, members)) or 'nothing'
        raise RuntimeError(f'it holds {len(checkpoints)} of them among {names}')
    return members[checkpoints[0]]
