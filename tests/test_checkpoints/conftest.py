"""Files for one test: saved ones, and a server on this machine with a cache of its downloads."""

import http.server
import threading
from dataclasses import dataclass, field

import pytest
import torch


@dataclass
class Server:
    """What it serves and how it behaves; how often it was asked."""

    address: str = ''
    files: dict[str, bytes] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200
    released: threading.Event = field(default_factory=threading.Event)
    # bytes of body to send before the connection breaks, one per request; None sends all
    breaks: list[int | None] = field(default_factory=list)
    requests: int = 0

    def url(self, name: str) -> str:
        return f'{self.address}/{name}'


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server.state
        content = server.files.get(self.path.removeprefix('/'))
        server.requests += 1
        if content is None:
            return self.send_error(404)
        self.send_response(server.status)
        headers = {'Content-Length': str(len(content)), **server.headers}
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        server.released.wait(60)
        self.wfile.write(content[: server.breaks.pop(0) if server.breaks else None])

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv('no_proxy', '127.0.0.1')
    monkeypatch.setattr('mmbixt.checkpoints.transfer.PAUSES', (0, 0))
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


@pytest.fixture
def save(tmp_path):
    """Write a checkpoint; returns its path."""

    def save(value):
        torch.save(value, tmp_path / 'saved.pth')
        return str(tmp_path / 'saved.pth')

    return save
