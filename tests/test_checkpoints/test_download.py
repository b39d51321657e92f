"""Downloads against a server on this machine that behaves as badly as servers do."""

import errno
import hashlib
import io
import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import torch

from mmbixt.checkpoints import download
from mmbixt.checkpoints.download import CheckpointFileError, DownloadError, cache_path, fetch
from mmbixt.checkpoints.loader import load_from_http

CONTENT = bytes(range(256)) * 40
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


def leave_partial(url, path, content, mark='"1"'):
    """As a run that was killed leaves it."""
    path.parent.mkdir(parents=True)
    path.with_name(f'{path.name}.part').write_bytes(content)
    path.with_name(f'{path.name}.part.json').write_text(json.dumps(dict(url=url, mark=mark)))


def zipped(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def test_file_is_downloaded_once_and_recorded(server, url, path):
    assert fetch(url, path).read_bytes() == CONTENT
    assert fetch(url, path).read_bytes() == CONTENT
    assert server.requests == [None]
    assert left(path) == {'model.pth', 'model.pth.json'}
    record = json.loads(path.with_name('model.pth.json').read_text())
    assert record == dict(url=url, size=len(CONTENT), sha256=DIGEST)


def test_size_need_not_be_known(server, url, path):
    server.headers['Content-Length'] = ''
    assert fetch(url, path).read_bytes() == CONTENT


@pytest.mark.parametrize('mark', ['"1"', 'Sat, 01 Aug 2026 00:00:00 GMT'])
def test_download_goes_on_where_a_killed_one_stopped(server, url, path, mark):
    server.headers = {'ETag' if mark[0] == '"' else 'Last-Modified': mark}
    leave_partial(url, path, CONTENT[:100], mark)
    assert fetch(url, path).read_bytes() == CONTENT
    assert server.requests == ['bytes=100-']
    assert left(path) == {'model.pth', 'model.pth.json'}


def test_really_killed_process_leaves_what_the_next_one_needs(server, url, path):
    server.files['model.pth'] = content = CONTENT * 200
    code = (
        'import os, sys, pathlib; from mmbixt.checkpoints import download\n'
        'come = download._chunks\n'
        'def kill_late(response):\n'
        '    for i, chunk in enumerate(come(response)):\n'
        '        if i == 3: os.kill(os.getpid(), 9)\n'
        '        yield chunk\n'
        'download._chunks = kill_late\n'
        'download.fetch(sys.argv[1], pathlib.Path(sys.argv[2]))'
    )
    done = subprocess.run([sys.executable, '-c', code, url, path], capture_output=True, check=False)
    assert done.returncode == -9, done.stderr.decode()
    assert left(path) == {'model.pth.part', 'model.pth.part.json'}
    size = path.with_name('model.pth.part').stat().st_size
    assert 0 < size < len(content)
    assert fetch(url, path).read_bytes() == content
    assert server.requests == [None, f'bytes={size}-']


def test_partial_that_is_whole_already_is_taken(server, url, path):
    leave_partial(url, path, CONTENT)
    assert fetch(url, path).read_bytes() == CONTENT
    assert server.requests == [f'bytes={len(CONTENT)}-']


@pytest.mark.parametrize(
    ('way', 'mark'),
    [
        *(('no ranges', '"1"'), ('another address', '"1"'), ('no mark', None)),
        *(('another version', '"0"'), ('another version, unsaid', '"0"')),
    ],
)
def test_download_starts_anew_where_it_cannot_go_on(server, url, path, way, mark):
    server.ranges = way != 'no ranges'
    server.if_range = 'unsaid' not in way
    leave_partial(url + ('x' if way == 'another address' else ''), path, b'x' * 100, mark)
    assert fetch(url, path).read_bytes() == CONTENT


def test_partial_longer_than_the_file_is_dropped(server, url, path, monkeypatch):
    leave_partial(url, path, CONTENT + b'x')
    connect = download._connect

    def beyond(url, headers):  # the test's server knows only the file's own end
        if headers:
            headers = {**headers, 'Range': f'bytes={len(CONTENT)}-'}
        return connect(url, headers)

    monkeypatch.setattr(download, '_connect', beyond)
    assert fetch(url, path).read_bytes() == CONTENT


def test_broken_connections_are_made_again(server, url, path):
    server.breaks = [100, 50]
    assert fetch(url, path).read_bytes() == CONTENT
    assert server.requests == [None, 'bytes=100-', 'bytes=150-']


def test_truncated_download_is_refused_and_kept_for_the_next_run(server, url, path):
    server.breaks = [100, 50, 25]
    with pytest.raises(DownloadError, match=r'175 of 10240 bytes.*Run again to go on'):
        fetch(url, path)
    assert left(path) == {'model.pth.part', 'model.pth.part.json'}
    assert fetch(url, path).read_bytes() == CONTENT
    assert server.requests[-1] == 'bytes=175-'


def test_altered_download_is_refused_and_removed(server, url, path):
    fetch(url, path, DIGEST[:8])
    path.unlink()
    server.files['model.pth'] = b'x' + CONTENT[1:]
    with pytest.raises(DownloadError, match=f'should begin with {DIGEST[:8]}.*removed'):
        fetch(url, path, DIGEST[:8])
    assert left(path) <= {'model.pth.json'}


def test_hash_in_a_published_name_is_verified(server, cache):
    digest = next(DIGEST[:n] for n in range(8, 20) if not DIGEST[:n].isdecimal())
    right, wrong = f'm-{digest}.pth', 'm-0000000f.pth'
    server.files = {right: CONTENT, wrong: CONTENT}
    fetch(server.url(right), cache / right)
    with pytest.raises(DownloadError, match='should begin with 0000000f'):
        fetch(server.url(wrong), cache / wrong)
    assert left(cache / wrong) == {right, f'{right}.json'}


@pytest.mark.parametrize('name', ['m-20260801.pth', 'm-00160000.pth', 'm-20210930235959.pth'])
def test_date_or_count_in_a_name_is_no_hash(server, cache, name):
    server.files[name] = CONTENT
    fetch(server.url(name), cache / 'm.pth')


@pytest.mark.parametrize('change', [b'x' + CONTENT[1:], CONTENT[:-1], CONTENT + b'x', b''])
def test_file_that_was_altered_in_the_cache_is_replaced(server, url, path, change):
    fetch(url, path)
    path.write_bytes(change)
    assert fetch(url, path).read_bytes() == CONTENT
    assert len(server.requests) == 2


def test_file_that_was_altered_is_removed_even_without_a_network(server, url, path):
    fetch(url, path)
    path.write_bytes(b'x')
    server.files.clear()
    with pytest.raises(DownloadError, match='404'):
        fetch(url, path)
    assert not path.exists()


def test_file_of_unknown_origin_is_used_unless_it_is_known_to_be_wrong(server, url, path):
    path.parent.mkdir(parents=True)
    path.write_bytes(b'by hand')
    assert fetch(url, path).read_bytes() == b'by hand'
    with pytest.raises(DownloadError, match='not the published file'):
        fetch(url, path, sha256=DIGEST[:8])
    assert path.read_bytes() == b'by hand'
    path.write_bytes(CONTENT)
    fetch(url, path, sha256=DIGEST[:8])
    assert not server.requests


def test_files_of_one_name_from_two_addresses_are_kept_apart(server, url, path):
    fetch(url, path)
    server.files['other/model.pth'] = b'another'
    other = server.url('other/model.pth')
    assert fetch(other, cache_path(other, 'model.pth')).read_bytes() == b'another'
    assert fetch(url, cache_path(url, 'model.pth')).read_bytes() == CONTENT


def test_processes_that_start_at_once_download_once(server, url, path):
    server.released.clear()
    code = (
        'import sys, pathlib; from mmbixt.checkpoints.download import fetch\n'
        'print("ready", flush=True)\n'
        'print(len(fetch(sys.argv[1], pathlib.Path(sys.argv[2])).read_bytes()))'
    )
    command = [sys.executable, '-c', code, url, str(path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert all(process.stdout.readline() == 'ready\n' for process in processes)
    time.sleep(0.5)  # all have asked by now, and none has got it
    server.released.set()
    outputs = [process.communicate(timeout=60)[0].split()[-1] for process in processes]
    assert outputs == [str(len(CONTENT))] * 3
    assert server.requests == [None]


def test_process_that_fails_lets_the_others_try(server, url, path):
    server.status = 403
    code = (
        'import sys, pathlib; from mmbixt.checkpoints.download import fetch\n'
        'fetch(sys.argv[1], pathlib.Path(sys.argv[2]))'
    )
    command = [sys.executable, '-c', code, url, str(path)]
    pipe = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    processes = [subprocess.Popen(command, **pipe) for _ in range(2)]
    assert all('DownloadError' in p.communicate(timeout=120)[1] for p in processes)
    assert len(server.requests) == 2


def test_full_disk(server, url, path, monkeypatch):
    opened = Path.open

    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, 'No space left on device')

    def open_full(self, mode='r', **kwargs):
        return Full() if self.suffix == '.part' and 'b' in mode else opened(self, mode, **kwargs)

    monkeypatch.setattr(Path, 'open', open_full)
    with pytest.raises(OSError, match=r'No space left on device.*make room') as caught:
        fetch(url, path)
    assert caught.value.errno == errno.ENOSPC
    assert not path.exists()


def test_refusal_says_what_happened_and_what_to_do(server, cache):
    with pytest.raises(DownloadError) as caught:
        fetch(server.url('absent.pth'), cache / 'absent.pth', note='Moved to the moon.')
    for part in (
        server.url('absent.pth'),
        '404 Not Found',
        'Moved to the moon.',
        "checkpoint='/path/to/file.pth'",
        str(cache / 'absent.pth'),
    ):
        assert part in str(caught.value)


def test_no_network(cache):
    with pytest.raises(DownloadError, match=r'127\.0\.0\.1:1/m\.pth cannot be reached'):
        fetch('http://127.0.0.1:1/m.pth', cache / 'm.pth')


def test_web_page_in_place_of_a_file(server, url, path):
    server.headers['Content-Type'] = 'text/html; charset=utf-8'
    with pytest.raises(DownloadError, match='gives no file'):
        fetch(url, path)
    assert not left(path)


@pytest.mark.parametrize(
    ('headers', 'content', 'message'),
    [
        ({'Content-Encoding': 'gzip'}, CONTENT, "only in the encoding 'gzip'"),
        ({}, b'', 'gives an empty file'),
    ],
)
def test_answer_that_is_no_file_is_refused(server, url, path, headers, content, message):
    server.headers = headers
    server.files['model.pth'] = content
    with pytest.raises(DownloadError, match=message):
        fetch(url, path)
    assert not path.exists()


def test_what_turns_out_to_be_no_checkpoint_does_not_stay(server, url, path):
    """Such as half a file from a server that does not say how long it is."""
    server.files['model.pth'] = b'<html>sign in</html>'
    with pytest.raises(CheckpointFileError, match='removed; run again to download it anew'):
        load_from_http(url)
    assert not path.exists()
    torch.save({'weight': torch.ones(2)}, path.with_name('right.pth'))
    server.files['model.pth'] = path.with_name('right.pth').read_bytes()
    assert torch.equal(load_from_http(url)['weight'], torch.ones(2))


def test_unreadable_file_of_the_user_stays(server, url, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('mine')
    with pytest.raises(CheckpointFileError):
        load_from_http(url)
    assert path.read_text() == 'mine'


def test_answer_that_promises_a_file_for_later(server, url, path):
    server.status = 202
    with pytest.raises(DownloadError, match='gives no file: the server answers 202'):
        fetch(url, path)


@pytest.mark.parametrize('address', ['file:///etc/hosts', 'ftp://host/m.pth', 'm.pth'])
def test_only_http(cache, address):
    with pytest.raises(DownloadError, match='no address of http'):
        fetch(address, cache / 'm.pth')


def test_busy_server_is_asked_again(server, url, path):
    server.status = 503
    with pytest.raises(DownloadError, match='503'):
        fetch(url, path)
    assert len(server.requests) == 3


@pytest.mark.parametrize('folder', ['', '../../', '/tmp/', 'C:\\'])
def test_checkpoint_in_a_zip_is_unpacked_beside_it(server, url, path, folder):
    others = {'__MACOSX/._a.pth': b'', '.DS_Store': b'', 'README.txt': b'read me'}
    server.files['model.pth'] = zipped(**{f'{folder}a.pth': CONTENT}, **others)
    for _ in range(2):
        assert fetch(url, path, is_zip=True).read_bytes() == CONTENT
    assert server.requests == [None]
    assert left(path) == {'model.pth', 'model.pth.json'}


def test_checkpoint_that_is_a_zip_itself_is_left_whole(server, url, path):
    buffer = io.BytesIO()
    torch.save({'w': torch.ones(2)}, buffer)
    server.files['model.pth'] = buffer.getvalue()
    assert torch.load(fetch(url, path, is_zip=True))['w'].sum() == 2


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        (b'no zip', 'not a zip'),
        (zipped(**{'a.txt': b'', 'b/c.py': b''}), r'holds 0 .* a\.txt, b/c\.py'),
        (zipped(**{'a.pth': b'', 'b.pth': b''}), r'holds 2 .* a\.pth, b\.pth'),
        (zipped(**{'a.pth': CONTENT})[:-30], 'not a zip'),
    ],
)
def test_zip_without_one_checkpoint_is_refused_and_removed(server, url, path, content, message):
    server.files['model.pth'] = content
    with pytest.raises(CheckpointFileError, match=message):
        fetch(url, path, is_zip=True)
    assert not left(path)


def test_damaged_member_of_a_zip_is_refused_and_removed(server, url, path):
    content = bytearray(zipped(**{'a.pth': CONTENT}))
    content[50] ^= 0xFF
    server.files['model.pth'] = bytes(content)
    with pytest.raises(CheckpointFileError, match='should be a zip archive'):
        fetch(url, path, is_zip=True)
    assert not left(path)


def test_folder_of_the_caller(server, tmp_path, cache):
    torch.save({'w': torch.ones(2)}, tmp_path / 'w.pth')
    server.files['shares/1/content'] = (tmp_path / 'w.pth').read_bytes()
    loaded = load_from_http(server.url('shares/1/content'), model_dir=str(tmp_path / 'mine'))
    assert loaded['w'].sum() == 2
    assert any(name.endswith('-content') for name in left(tmp_path / 'mine/x'))
    assert not cache.exists()
