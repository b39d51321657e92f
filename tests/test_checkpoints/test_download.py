"""Downloads against a server on this machine that behaves as badly as servers do."""

import hashlib
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
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def url(server):
    server.files['model.pth'] = CONTENT
    return server.url('model.pth')


@pytest.fixture
def path(cache):
    return cache / 'model.pth'


READY = {'model.pth', 'model.pth.json'}


def left(path):
    """What lies in the cache, locks apart."""
    return {other.name for other in path.parent.iterdir() if not other.name.endswith('.lock')}


@pytest.mark.parametrize('size', [str(len(CONTENT)), None], ids=['size known', 'unknown'])
def test_file_is_downloaded_once_and_recorded(server, url, path, size):
    server.headers['Content-Length'] = size
    for _ in range(2):
        assert fetch(url, path).read_bytes() == CONTENT
    assert (server.requests, left(path)) == (1, READY)
    path.write_bytes(CONTENT[:-1])  # such a file is replaced
    assert fetch(url, path).read_bytes() == CONTENT


def test_broken_connections_are_made_again(server, url, path):
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
        (dict(status=503), '503', 3),  # it is busy
        (dict(status=403), '403', 1),
        # a page of signing in, or one that is made while we wait
        (dict(headers={'Content-Type': 'text/html; charset=utf-8'}), 'this is no file', 1),
        (dict(status=202), 'this is no file: the answer is 202', 1),
        (dict(headers={'Content-Length': 'abc'}), r'model\.pth', 1),
        # whatever it says of its size
        (dict(content=bytes(1 << 23), headers={'Content-Length': None}), 'larger than 4 MiB', 1),
        # an archive without one whole checkpoint
        (dict(archive=b'no zip'), 'not a zip', 1),
        (dict(archive=zipped({'a.txt': b'', 'b/c.py': b''})), r'0 .* a\.txt, b/c\.py', 1),
        (dict(archive=zipped({'a.pth': b'', 'b.pth': b''})), r'2 .* a\.pth, b\.pth', 1),
        (dict(archive=bytes(DAMAGED)), 'should be a zip archive', 1),
        (dict(archive=zipped({'a.pth': bytes(1 << 23)})), 'larger than 4 MiB', 1),
    ],
)
def test_refused_answers(server, url, path, monkeypatch, behaviour, message, requests):
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
def test_checkpoint_in_a_zip_is_unpacked_and_one_that_is_a_zip_is_not(server, url, path, content):
    server.files['model.pth'] = content
    for _ in range(2):
        assert fetch(url, path, is_zip=True).read_bytes() == CHECKPOINT
    assert (server.requests, left(path)) == (1, READY)


def test_file_of_another_hash_is_refused_and_removed(server, cache):
    server.files['m-0000000f.pth'] = CONTENT
    with pytest.raises(DownloadError, match='should begin with 0000000f'):
        fetch(server.url('m-0000000f.pth'), cache / 'm.pth')
    assert not left(cache / 'm.pth')


def test_date_or_uuid_in_a_name_is_no_hash():
    assert not hash_in('https://host/m-20260801.pth')
    assert not hash_in('https://host/m-f47ac10b-58cc-4372-a567-0e02b2c3d479.pth')


def test_file_of_unknown_origin_is_used_unless_it_is_known_to_be_wrong(server, url, path):
    path.parent.mkdir(parents=True)
    path.write_bytes(b'by hand')
    assert fetch(url, path).read_bytes() == b'by hand'
    with pytest.raises(DownloadError, match='whose sha256 does not begin with 0000000f'):
        fetch(server.url('m-0000000f.pth'), path)
    with pytest.raises(CheckpointFileError):
        read_source(str(path))
    assert path.read_bytes() == b'by hand'
    assert not server.requests


def test_hash_is_computed_once(server, path, monkeypatch):
    """Not at each use by each process: it takes a second for each GB or two."""
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)  # as torch hub leaves it
    fetch(server.url(f'm-{DIGEST}.pth'), path)
    monkeypatch.setattr('pooch.file_hash', None)
    fetch(server.url(f'm-{DIGEST}.pth'), path)


def test_files_of_one_name_from_two_addresses_are_kept_apart(server, url, cache):
    server.files['other/model.pth'] = b'another'
    for _ in range(2):
        assert find_file(server.url('other/model.pth')).read_bytes() == b'another'
        assert find_file(url).read_bytes() == CONTENT


def start(server, url, path, count):
    """Processes, of which one waits for the server, and the others for that one."""
    server.released.clear()
    context = multiprocessing.get_context('fork')
    processes = [context.Process(target=fetch, args=(url, path)) for _ in range(count)]
    for process in processes:
        process.start()
    while not server.requests:
        time.sleep(0.01)
    time.sleep(0.5)  # all have asked by now
    return processes


def test_processes_that_start_at_once_download_once(server, url, path):
    processes = start(server, url, path, 3)
    server.released.set()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert path.read_bytes() == CONTENT
    assert server.requests == 1


def test_process_that_is_killed_lets_the_next_one_go_on(server, url, path):
    (process,) = start(server, url, path, 1)
    process.kill()
    process.join(60)
    server.released.set()
    assert fetch(url, path).read_bytes() == CONTENT
    assert left(path) == READY


def test_full_disk(url, path):
    path.parent.mkdir(parents=True)
    path.with_name('model.pth.part').symlink_to('/dev/full')
    with pytest.raises(OSError, match=r'No space left on device. Make room.*TORCH_HOME'):
        fetch(url, path)
    assert not left(path)


@pytest.mark.parametrize('address', ['http://[::1/m.pth', 'http://127.0.0.1:1/m.pth'])
@pytest.mark.parametrize('place', ['address', 'redirect'])
def test_address_without_a_server(server, url, cache, address, place):
    if place == 'redirect':
        server.headers['Location'], server.status = address, 302
    with pytest.raises(DownloadError, match=r'm(odel)?\.pth was not downloaded'):
        read_source(url if place == 'redirect' else address)
    assert not left(cache / 'm.pth')


@pytest.mark.parametrize('cut', [0, 600])
def test_what_turns_out_to_be_no_checkpoint_does_not_stay(server, url, cache, cut):
    """Such as a page, or half a file from a server that does not say how long it is."""
    server.files['model.pth'] = CHECKPOINT[:cut] if cut else b'<html>sign in</html>'
    with pytest.raises(CheckpointFileError, match='removed; run again to download it anew'):
        read_source(url)
    assert not left(cache / 'm.pth')
    server.files['model.pth'] = CHECKPOINT
    assert torch.equal(read_source(url)['weight'], torch.ones(2))
