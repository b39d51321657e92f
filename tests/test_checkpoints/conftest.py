"""A server of files on this machine, and a cache of their downloads, both for one test."""

import http.server
import re
import threading
from dataclasses import dataclass, field

import pytest


@dataclass
class Server:
    """What it serves and how it behaves; what it was asked."""

    address: str = ''
    files: dict[str, bytes] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=lambda: {'ETag': '"1"'})
    status: int = 200
    ranges: bool = True
    if_range: bool = True  # whether it looks at the header of this name
    released: threading.Event = field(default_factory=threading.Event)
    # bytes of body to send before the connection breaks, one per request; None sends all
    breaks: list[int | None] = field(default_factory=list)
    requests: list[str | None] = field(default_factory=list)  # the Range of each

    def url(self, name: str) -> str:
        return f'{self.address}/{name}'


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server.state
        content = server.files.get(self.path.removeprefix('/'))
        asked = self.headers.get('Range')
        server.requests.append(asked)
        start, status = 0, server.status
        if content is None:
            return self.send_error(404)
        is_same = not server.if_range or self.headers['If-Range'] in server.headers.values()
        if asked and server.ranges and is_same:
            start, status = int(re.fullmatch(r'bytes=(\d+)-', asked)[1]), 206
        is_whole = status == 206 and start == len(content)
        self.send_response(416 if is_whole else status)
        for name, value in server.headers.items():
            self.send_header(name, value)
        if is_whole:
            self.send_header('Content-Range', f'bytes */{len(content)}')
        elif status == 206:
            self.send_header('Content-Range', f'bytes {start}-{len(content) - 1}/{len(content)}')
        if 'Content-Length' not in server.headers:
            self.send_header('Content-Length', str(len(content) - start))
        self.end_headers()
        server.released.wait(60)
        stop = server.breaks.pop(0) if server.breaks else None
        self.wfile.write(content[start:][:stop])

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv('no_proxy', '127.0.0.1')
    monkeypatch.setattr('mmbixt.checkpoints.download.PAUSES', (0, 0))
    running = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    running.state = Server(f'http://127.0.0.1:{running.server_port}')
    running.state.released.set()
    threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
    yield running.state
    running.shutdown()
    running.server_close()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'home'))
    return tmp_path / 'home/hub/checkpoints'
