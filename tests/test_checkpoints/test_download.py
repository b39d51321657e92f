"""Downloads from a local server that breaks connections, sends pages, or is slow."""

import multiprocessing
import time

import pytest
import torch
from test_checkpoints.layouts import saved, zipped

from mmbixt.checkpoints import download
from mmbixt.checkpoints.download import fetch
from mmbixt.checkpoints.errors import CheckpointFileError, DownloadError
from mmbixt.checkpoints.loader import find_file, read_source
from mmbixt.checkpoints.sources import hash_in

CONTENT = bytes(range(256)) * 40
CHECKPOINT = saved({'weight': torch.ones(2)})


@pytest.fixture
def url(server):
    server.files['model.pth'] = CONTENT
    return server.url('model.pth')


@pytest.fixture
def path(cache):
    return cache / 'model.pth'


READY = {'model.pth', 'model.pth.json'}


def left(path):
    """Names of the files in the cache, without locks."""
    return {other.name for other in path.parent.iterdir() if not other.name.endswith('.lock')}


@pytest.mark.parametrize('size', [str(len(CONTENT)), None], ids=['size known', 'unknown'])
def test_file_is_downloaded_once_and_recorded(server, url, path, size):
    server.headers['Content-Length'] = size
    for _ in range(2):
        assert fetch(url, path).read_bytes() == CONTENT
    assert (server.requests, left(path)) == (1, READY)
    path.write_bytes(CONTENT[:-1])  # a file of another size is replaced
    assert fetch(url, path).read_bytes() == CONTENT


def test_broken_connections_are_retried(server, url, path):
    server.breaks = [100, 50]
    assert fetch(url, path).read_bytes() == CONTENT
    server.breaks, server.requests = [100, 50, 25], 0
    path.unlink()
    with pytest.raises(DownloadError, match='IncompleteRead'):
        fetch(url, path)
    assert server.requests == 3
    assert left(path) == {'model.pth.json'}


DAMAGED = bytearray(zipped({'a.pth': CONTENT}))
DAMAGED[50] ^= 0xFF


@pytest.mark.parametrize(
    ('behaviour', 'message', 'requests'),
    [
        (dict(status=503), '503', 3),  # busy
        (dict(status=403), '403', 1),
        # a sign-in page, or a file that is not ready
        (dict(headers={'Content-Type': 'text/html; charset=utf-8'}), 'server sent no file', 1),
        (dict(status=202), 'the server sent no file: status 202', 1),
        (dict(headers={'Content-Length': 'abc'}), r'model\.pth', 1),
        # without a stated size
        (dict(content=bytes(1 << 23), headers={'Content-Length': None}), 'larger than 4 MiB', 1),
        # archives without a single, intact checkpoint
        (dict(archive=b'no zip'), 'not a zip', 1),
        (dict(archive=zipped({'a.txt': b'', 'b/c.py': b''})), r'0 .* a\.txt, b/c\.py', 1),
        (dict(archive=zipped({'a.pth': b'', 'b.pth': b''})), r'2 .* a\.pth, b\.pth', 1),
        (dict(archive=bytes(DAMAGED)), 'should be a zip archive', 1),
        (dict(archive=zipped({'a.pth': bytes(1 << 23)})), 'larger than 4 MiB', 1),
    ],
)
def test_refused_responses(server, url, path, monkeypatch, behaviour, message, requests):
    server.files['model.pth'] = behaviour.get('archive') or behaviour.get('content', CONTENT)
    for name in behaviour.keys() & {'status', 'headers'}:
        setattr(server, name, behaviour[name])
    monkeypatch.setattr(download, 'LARGEST', 1 << 22)
    with pytest.raises(DownloadError, match=message):
        fetch(url, path, is_zip='archive' in behaviour)
    assert requests == server.requests
    assert not left(path)


JUNK = {'__MACOSX/._a.pth': b'', '.DS_Store': b'', 'README.txt': b'read me'}


@pytest.mark.parametrize('content', [zipped({'../../a.pth': CHECKPOINT, **JUNK}), CHECKPOINT])
def test_zip_around_a_checkpoint_is_unpacked_and_a_checkpoint_is_not(server, url, path, content):
    server.files['model.pth'] = content
    for _ in range(2):
        assert fetch(url, path, is_zip=True).read_bytes() == CHECKPOINT
    assert (server.requests, left(path)) == (1, READY)


def test_file_of_another_hash_is_refused_and_removed(server, cache):
    server.files['m-0000000f.pth'] = CONTENT
    with pytest.raises(DownloadError, match='should begin with 0000000f'):
        fetch(server.url('m-0000000f.pth'), cache / 'm.pth')
    assert not left(cache / 'm.pth')
    for name in ('m-20260801.pth', 'm-f47ac10b-58cc-4372-a567-0e02b2c3d479.pth'):  # a date, a UUID
        assert not hash_in(f'https://host/{name}')


def test_file_without_record_is_used_unless_its_hash_is_wrong(server, url, path):
    path.parent.mkdir(parents=True)
    path.write_bytes(b'by hand')
    assert fetch(url, path).read_bytes() == b'by hand'
    with pytest.raises(DownloadError, match='its sha256 does not begin with 0000000f'):
        fetch(server.url('m-0000000f.pth'), path)
    with pytest.raises(CheckpointFileError):
        read_source(str(path))
    assert path.read_bytes() == b'by hand'
    assert not server.requests


def test_files_of_the_same_name_from_two_urls_do_not_collide(server, url, cache):
    server.files['other/model.pth'] = b'another'
    for _ in range(2):
        assert find_file(server.url('other/model.pth')).read_bytes() == b'another'
        assert find_file(url).read_bytes() == CONTENT


def test_processes_wait_for_a_download_unless_its_process_ends(server, url, path):
    server.released.clear()
    context = multiprocessing.get_context('fork')
    killed, *processes = (context.Process(target=fetch, args=(url, path)) for _ in range(3))
    killed.start()
    wait_for_requests(server, 1)
    killed.kill()
    killed.join(60)
    for process in processes:
        process.start()
    wait_for_requests(server, 2)
    time.sleep(0.5)  # until the other one waits, too
    server.released.set()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert path.read_bytes() == CONTENT
    assert (server.requests, left(path)) == (2, READY)


def wait_for_requests(server, count):
    while server.requests < count:
        time.sleep(0.01)


def test_full_disk(url, path):
    path.parent.mkdir(parents=True)
    path.with_name('model.pth.part').symlink_to('/dev/full')
    with pytest.raises(OSError, match=r'No space left on device. Free some.*TORCH_HOME'):
        fetch(url, path)
    assert not left(path)


@pytest.mark.parametrize('address', ['http://[::1/m.pth', 'http://127.0.0.1:1/m.pth'])
def test_url_without_a_server(server, url, cache, address):
    server.headers['Location'], server.status = address, 302
    for name in (url, address):
        with pytest.raises(DownloadError, match=r'm(odel)?\.pth was not downloaded'):
            read_source(name)
        assert not left(cache / 'm.pth')


@pytest.mark.parametrize('cut', [0, 600])
def test_downloads_that_cannot_be_read_are_removed(server, url, cache, cut):
    """A web page, or a truncated file from a server that does not state the size."""
    server.files['model.pth'] = CHECKPOINT[:cut] if cut else b'<html>sign in</html>'
    with pytest.raises(CheckpointFileError, match='removed; run again to download it again'):
        read_source(url)
    assert not left(cache / 'm.pth')
    server.files['model.pth'] = CHECKPOINT
    assert torch.equal(read_source(url)['weight'], torch.ones(2))
