"""One file over http or https."""

import sys
import time
from pathlib import Path
from typing import BinaryIO

import pooch
import requests

from mmbixt.checkpoints.errors import DownloadError

PAUSES = (1, 4)  # seconds before a broken connection is tried again
TIMEOUT = 30  # seconds without a byte


class _LimitedFile:
    """Refuses to grow beyond the limit, whatever the server says of its size."""

    def __init__(self, url: str, file: BinaryIO, largest: int) -> None:
        self.url, self.file, self.largest = url, file, largest
        self.flush = file.flush

    def write(self, content: bytes) -> None:
        if self.file.tell() + len(content) > self.largest:
            size = f'larger than {self.largest >> 20} MiB'
            raise DownloadError(f'{self.url} gives a file {size}, which was removed.')
        self.file.write(content)


def transfer(url: str, part: Path, largest: int) -> None:
    """Write what an address gives to a file, of so many bytes at most."""
    if not url.lower().startswith(('http://', 'https://')):
        raise DownloadError(f'{url} is no address of http or https.')
    get = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        chunk_size=1 << 18,
        timeout=TIMEOUT,
        headers={'User-Agent': 'mmbixt', 'Accept-Encoding': 'identity'},
        hooks={'response': lambda response, **_: _check_response(url, response)},
    )
    for pause in (*PAUSES, None):
        try:
            with part.open('wb') as file:
                return get(url, _LimitedFile(url, file, largest), None)
        except requests.RequestException as error:
            status = getattr(error.response, 'status_code', None)
            if pause is None or (status and status < 500 and status not in (408, 429)):
                what = f'the server answers {status}' if status else f'it cannot be had ({error})'
                raise DownloadError(f'{url}: {what}.') from error
            time.sleep(pause)
        except ValueError as error:  # of an address or a header that is malformed
            raise DownloadError(f'{url}: it cannot be had ({error}).') from error


def _check_response(url: str, response: requests.Response) -> None:
    """Refuse pages: of signing in, or checks for robots, which come with the status of success."""
    kind = response.headers.get('Content-Type', '')
    if url.startswith('https:') and not response.url.startswith('https:'):
        raise DownloadError(f'{url} leads to {response.url}, which is not protected by https.')
    if response.ok and not response.is_redirect and (response.status_code != 200 or 'html' in kind):
        raise DownloadError(f'{url} gives no file: it answers {response.status_code} with {kind}.')
