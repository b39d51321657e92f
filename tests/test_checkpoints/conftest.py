"""Fixtures: saved files, a local HTTP server, and an empty cache for its downloads."""

import http.server
import threading

import pytest
import torch


class Server(http.server.ThreadingHTTPServer):
    """Serves ``files``, and counts requests."""

    def __init__(self):
        super().__init__(('127.0.0.1', 0), Handler)
        self.files, self.requests = {}, 0
        # bytes of body to send before the connection breaks, one per request
        self.breaks = []

    def url(self, name):
        return f'http://127.0.0.1:{self.server_port}/{name}'


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        content = server.files.get(self.path.removeprefix('/'))
        server.requests += 1
        if content is None:
            return self.send_error(404)
        self.send_response(200)
        self.send_header('Content-Length', str(len(content)))
        self.end_headers()
        self.wfile.write(content[: server.breaks.pop(0) if server.breaks else None])

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv('no_proxy', '127.0.0.1')
    with Server() as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield running
        running.shutdown()


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
