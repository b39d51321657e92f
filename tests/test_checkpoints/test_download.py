"""Downloads against a server on this machine that behaves as badly as servers do."""

import hashlib
import json
import multiprocessing
import os
import re
import time

import pytest
import torch
from test_checkpoints.layouts import saved, zipped

from mmbixt.checkpoints import download, transfer
from mmbixt.checkpoints.download import cache_path, fetch
from mmbixt.checkpoints.errors import CheckpointFileError, DownloadError
from mmbixt.checkpoints.loader import read_source

CONTENT = bytes(range(256)) * 40
CHECKPOINT = saved({'weight': torch.ones(2)})
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def url(server):
    server.files['model.pth'] = CONTENT
    return server.url('model.pth')


@pytest.fixture
def path(cache, url):
    return cache_path(url, 'model.pth')


def left(path):
    """What lies in the cache, locks apart."""
    return {other.name for other in path.parent.iterdir() if not other.name.endswith('.lock')}


@pytest.mark.parametrize('size', [str(len(CONTENT)), None], ids=['size known', 'unknown'])
def test_file_is_downloaded_once_and_recorded(server, url, path, size, capfd):
    server.headers['Content-Length'] = size
    for _ in range(2):
        assert fetch(url, path).read_bytes() == CONTENT
    assert server.requests == 1
    assert left(path) == {'model.pth', 'model.pth.json'}
    record = json.loads(path.with_name('model.pth.json').read_text())
    assert record == dict(url=url, size=len(CONTENT))
    assert '\r' not in capfd.readouterr().err  # no bar where there is no terminal


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
        (dict(status=503), 'answers 503', 3),  # it is busy
        (dict(status=403), 'answers 403', 1),
        # a page of signing in, or one that is made while we wait
        (dict(headers={'Content-Type': 'text/html; charset=utf-8'}), 'gives no file', 1),
        (dict(status=202), 'gives no file: it answers 202', 1),
        (dict(headers={'Content-Length': 'abc'}), r'model\.pth', 1),
        (dict(headers={'Content-Length': '10240, 10240'}), r'model\.pth', None),
        # whatever it says of its size
        (dict(content=bytes(1 << 23), headers={'Content-Length': None}), 'larger than 4 MiB', 1),
    ],
)
def test_refused_answers(server, url, path, monkeypatch, behaviour, message, requests):
    server.files['model.pth'] = behaviour.pop('content', CONTENT)
    for name, value in behaviour.items():
        setattr(server, name, value)
    monkeypatch.setattr(download, 'LARGEST', 1 << 22)
    with pytest.raises(DownloadError, match=message):
        fetch(url, path)
    assert requests in (None, server.requests)
    assert not left(path)


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        (b'no zip', 'not a zip'),
        (zipped({'a.txt': b'', 'b/c.py': b''}), r'holds 0 .* a\.txt, b/c\.py'),
        (zipped({'a.pth': b'', 'b.pth': b''}), r'holds 2 .* a\.pth, b\.pth'),
        (zipped({'a.pth': CONTENT})[:-30], 'not a zip'),
        (bytes(DAMAGED), 'should be a zip archive'),
        (zipped({'a.pth': bytes(1 << 23)}), 'larger than 4 MiB'),
    ],
)
def test_zip_without_one_whole_checkpoint_is_refused(
    server, url, path, monkeypatch, content, message
):
    server.files['model.pth'] = content
    monkeypatch.setattr(download, 'LARGEST', 1 << 22)
    with pytest.raises(DownloadError, match=message):
        fetch(url, path, is_zip=True)
    assert not left(path)


def test_file_of_another_hash_is_refused_and_removed(server, cache):
    server.files['m-0000000f.pth'] = CONTENT
    with pytest.raises(DownloadError, match=r'should begin with 0000000f.*removed'):
        fetch(server.url('m-0000000f.pth'), cache / 'm.pth')
    assert not left(cache / 'm.pth')


@pytest.mark.parametrize(
    'end', ['20260801', '00160000', DIGEST[:9], 'f47ac10b-58cc-4372-a567-0e02b2c3d479']
)
def test_date_or_count_in_a_name_is_no_hash(server, cache, end):
    server.files[f'm-{end}.pth'] = CONTENT
    assert fetch(server.url(f'm-{end}.pth'), cache / 'm.pth').exists()


def test_file_that_was_truncated_in_the_cache_is_replaced(server, url, path):
    fetch(url, path)
    path.write_bytes(CONTENT[:-1])
    assert fetch(url, path).read_bytes() == CONTENT
    assert server.requests == 2


def test_file_of_unknown_origin_is_used_unless_it_is_known_to_be_wrong(server, url, path):
    path.parent.mkdir(parents=True)
    path.write_bytes(b'by hand')
    assert fetch(url, path).read_bytes() == b'by hand'
    with pytest.raises(DownloadError, match='not the published file'):
        fetch(server.url('m-0000000f.pth'), path)
    assert path.read_bytes() == b'by hand'
    assert not server.requests


def test_hash_is_computed_once(server, path, monkeypatch):
    """Not at each use by each process: it takes a second for each GB or two."""
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)  # as torch hub leaves it
    url = server.url(f'm-{DIGEST}.pth')
    assert fetch(url, path).read_bytes() == CONTENT
    monkeypatch.setattr('pooch.file_hash', None)
    fetch(url, path)
    assert not server.requests


def test_cache_that_cannot_be_written_is_read(server, path, monkeypatch):
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    monkeypatch.setattr(os, 'access', lambda *_: False)  # root may write whatever the mode
    monkeypatch.setattr(download, 'FileLock', None)
    assert fetch(server.url(f'm-{DIGEST}.pth'), path) == path
    assert left(path) == {'model.pth'}


def test_files_of_one_name_from_two_addresses_are_kept_apart(server, url, path):
    fetch(url, path)
    server.files['other/model.pth'] = b'another'
    other = server.url('other/model.pth')
    assert fetch(other, cache_path(other, 'model.pth')).read_bytes() == b'another'
    assert fetch(url, cache_path(url, 'model.pth')).read_bytes() == CONTENT


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
    assert all(process.is_alive() for process in processes)
    server.released.set()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert path.read_bytes() == CONTENT
    assert server.requests == 1


def test_process_that_is_killed_lets_the_next_one_go_on(server, url, path):
    (process,) = start(server, url, path, 1)
    process.kill()
    process.join(60)
    server.released.set()
    assert fetch(url, path).read_bytes() == CONTENT
    assert left(path) == {'model.pth', 'model.pth.json'}


def test_full_disk(url, path, monkeypatch):
    def write(url, part, largest):
        with open('/dev/full', 'wb', buffering=0) as file:
            file.write(CONTENT)

    monkeypatch.setattr(download, 'transfer', write)
    with pytest.raises(OSError, match=r'No space left on device. Make room.*TORCH_HOME'):
        fetch(url, path)
    assert not left(path)


def test_refusal_says_what_happened_and_what_to_do(server, cache):
    url, path = server.url('absent.pth'), cache / 'absent.pth'
    with pytest.raises(DownloadError) as caught:
        fetch(url, path, note='Moved to the moon.')
    for part in (url, '404', 'Moved to the moon.', "checkpoint='/path/to/file.pth'", str(path)):
        assert part in str(caught.value)


@pytest.mark.parametrize('place', ['address', 'redirect'])
@pytest.mark.parametrize('host', ['[::1', '...'])
def test_malformed_address(server, url, cache, host, place):
    address = f'http://{host}/m.pth'
    if place == 'redirect':
        server.headers['Location'], server.status, address = address, 302, url
    with pytest.raises(DownloadError, match=re.escape(address)):
        read_source(address)
    assert not cache.exists() or not left(cache / 'm.pth')


def test_no_network(cache, monkeypatch):
    monkeypatch.setattr(transfer, 'PAUSES', ())
    with pytest.raises(DownloadError, match=r'127\.0\.0\.1:1/m\.pth: it cannot be had'):
        fetch('http://127.0.0.1:1/m.pth', cache / 'm.pth')


@pytest.mark.parametrize('cut', [None, 600])
def test_what_turns_out_to_be_no_checkpoint_does_not_stay(server, url, path, cut):
    """Such as a page, or half a file from a server that does not say how long it is."""
    server.files['model.pth'] = CHECKPOINT[:cut] if cut else b'<html>sign in</html>'
    with pytest.raises(CheckpointFileError, match='removed; run again to download it anew'):
        read_source(url)
    assert not left(path)
    server.files['model.pth'] = CHECKPOINT
    assert torch.equal(read_source(url)['weight'], torch.ones(2))


def test_unreadable_file_of_the_user_stays(url, path):
    path.parent.mkdir(parents=True)
    path.write_text('mine')
    with pytest.raises(CheckpointFileError):
        read_source(url)
    assert path.read_text() == 'mine'


def test_only_http(cache):
    with pytest.raises(DownloadError, match='no address of http'):
        fetch('file:///etc/hosts', cache / 'm.pth')


@pytest.mark.parametrize('folder', ['', '../../', '/'])
def test_checkpoint_in_a_zip_is_unpacked(server, url, path, folder):
    others = {'__MACOSX/._a.pth': b'', '.DS_Store': b'', 'README.txt': b'read me'}
    server.files['model.pth'] = zipped({f'{folder}a.pth': CONTENT, **others})
    for _ in range(2):
        assert fetch(url, path, is_zip=True).read_bytes() == CONTENT
    assert server.requests == 1
    assert left(path) == {'model.pth', 'model.pth.json'}


def test_checkpoint_that_is_a_zip_itself_is_left_whole(server, url, path):
    server.files['model.pth'] = CHECKPOINT
    assert torch.load(fetch(url, path, is_zip=True))['weight'].sum() == 2
