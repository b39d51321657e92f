"""Through mmengine: once anything of mmbixt is used, its stock functions read files safely."""

import http.server
import threading
from pathlib import Path

import pytest
import torch
from mmengine.runner import CheckpointLoader, load_checkpoint

import mmbixt.registry  # noqa: F401
from mmbixt.checkpoints.loader import _cache_name, load_from_http, load_from_local
from mmbixt.checkpoints.unpickler import UnsafeCheckpointError


def test_readers_are_registered():
    assert CheckpointLoader._get_checkpoint_loader('a/file.pth') is load_from_local
    assert CheckpointLoader._get_checkpoint_loader('https://host/file.pth') is load_from_http


def test_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    torch.save({'state_dict': torch.nn.Linear(2, 2).state_dict()}, tmp_path / 'x.pth')
    load_checkpoint(torch.nn.Linear(2, 2), '~/x.pth', strict=True)


def test_download_is_kept_and_read_safely(tmp_path, monkeypatch):
    torch.save({'w': torch.arange(3)}, tmp_path / 'served.pth')
    requests = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path))

        def log_message(self, *args):
            requests.append(args)

    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'cache'))
    server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f'http://127.0.0.1:{server.server_port}/served.pth'
        for _ in range(2):
            loaded = CheckpointLoader.load_checkpoint(url, map_location='cpu')
            assert torch.equal(loaded['w'], torch.arange(3))
    finally:
        server.shutdown()
        server.server_close()
    assert len(requests) == 1
    assert (tmp_path / 'cache/hub/checkpoints/served.pth').is_file()


def test_names_of_published_models_are_read_safely_too(tmp_path, monkeypatch):
    """torchvision:// and the like look up an address and download it."""

    class Code:
        def __reduce__(self):
            return eval, ('1 + 1',)

    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    from mmengine.runner.checkpoint import get_torchvision_models

    name = Path(get_torchvision_models()['resnet18']).name
    cache = tmp_path / 'hub/checkpoints'
    cache.mkdir(parents=True)
    torch.save(Code(), cache / name)
    with pytest.raises(UnsafeCheckpointError, match='eval'):
        CheckpointLoader.load_checkpoint('torchvision://resnet18')


def test_files_in_the_cache_are_not_mixed_up():
    assert _cache_name('https://host/a/model.pth?x=1') == 'model.pth'
    first, second = (_cache_name(f'https://host/shares/{i}/content') for i in range(2))
    assert first != second
    assert first.endswith('-content')


def test_error_of_a_reader_reaches_the_caller(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_checkpoint(torch.nn.Linear(2, 2), str(tmp_path / 'absent.pth'))
