"""Download one file over http or https."""

import io
import sys
import time
from pathlib import Path

import pooch
import requests

from mmbixt.checkpoints.errors import DownloadError

PAUSES = (1, 4)  # seconds before each retry after a connection error
TIMEOUT = 30  # seconds without data


class _LimitedFile(io.BufferedWriter):
    """A file with a maximal size, because servers may state a wrong one."""

    def __init__(self, path: Path, largest: int) -> None:
        super().__init__(io.FileIO(path, 'wb'))
        self.largest = largest

    def write(self, content: bytes) -> int:
        if self.tell() + len(content) > self.largest:
            raise DownloadError(f'the file is larger than {self.largest >> 20} MiB')
        return super().write(content)


def transfer(url: str, part: Path, largest: int) -> None:
    """Download ``url`` to the file ``part``, at most ``largest`` bytes."""
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
            with _LimitedFile(part, largest) as file:
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
