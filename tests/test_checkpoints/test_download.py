"""Files by path, by published name, and by URL from a local server."""

import os

import pytest
import timm
import torch
from mmengine.runner import CheckpointLoader
from safetensors.torch import save_file
from test_checkpoints.layouts import Calls, saved, zipped

import mmbixt.registry  # noqa: F401
from mmbixt.checkpoints.download import fetch
from mmbixt.checkpoints.errors import CheckpointFileError
from mmbixt.checkpoints.loader import load
from mmbixt.checkpoints.sources import SOURCES, hash_in

CHECKPOINT = saved({'weight': torch.ones(2)})
JUNK = {'__MACOSX/._a.pth': b'', '.DS_Store': b'', 'README.txt': b'read me'}


@pytest.fixture
def url(server):
    server.files['model.pth'] = CHECKPOINT
    return server.url('model.pth')


@pytest.mark.parametrize('content', [CHECKPOINT, zipped({'../../a.pth': CHECKPOINT, **JUNK})])
def test_a_file_is_downloaded_and_unpacked_once(server, url, cache, content):
    server.files['model.pth'] = content
    for _ in range(2):
        path = fetch(url, 'model.pth', is_zip=content is not CHECKPOINT)
        assert path.read_bytes() == CHECKPOINT
    assert server.requests == 1
    assert [*cache.iterdir()] == [cache / 'model.pth']


def test_what_fails_leaves_nothing_and_says_which_file_to_put_where(server, url, cache):
    server.breaks = [100]
    with pytest.raises(CheckpointFileError, match='IncompleteRead') as caught:
        fetch(url, 'model.pth', note='broken links')
    assert all(part in str(caught.value) for part in (url, 'broken links', f'{cache}/model.pth'))
    server.files['model.pth'] = zipped({'a.txt': b''})
    with pytest.raises(CheckpointFileError, match='must contain one checkpoint, not 0'):
        fetch(url, 'model.pth', is_zip=True)
    assert not [*cache.iterdir()]


def test_a_file_of_another_hash_is_refused(server, cache):
    server.files['m-0000000f.pth'] = CHECKPOINT
    with pytest.raises(CheckpointFileError, match='must begin with 0000000f'):
        fetch(server.url('m-0000000f.pth'), 'm.pth')
    assert not [*cache.iterdir()]
    (cache / 'm.pth').write_bytes(b'by hand')
    with pytest.raises(CheckpointFileError, match=r'sha256 of .*m\.pth must begin with 0000000f'):
        fetch(server.url('m-0000000f.pth'), 'm.pth')
    assert fetch(server.url('m.pth'), 'm.pth').read_bytes() == b'by hand'
    assert server.requests == 1
    assert not hash_in('https://host/m-20260801.pth')  # a date


def test_mmengine_reads_urls_safely_and_apart(server, url, cache):
    assert CheckpointLoader.load_checkpoint(url)['weight'].tolist() == [1, 1]
    server.files['bad.pth'] = saved(Calls(os.getenv, 'HOME'))
    with pytest.raises(CheckpointFileError, match=r'bad\.pth cannot be read: .*GLOBAL os\.getenv'):
        CheckpointLoader.load_checkpoint(server.url('bad.pth'))
    other = f'{url}?of=another'  # a file of the same name
    assert [path.name[8:] for path in sorted(cache.iterdir())].count('-model.pth') == 1
    server.files[other.rpartition('/')[2]] = saved(dict(weight=torch.zeros(2)))
    assert CheckpointLoader.load_checkpoint(other)['weight'].tolist() == [0, 0]


def test_safetensors(tmp_path):
    weights, path = {'a.weight': torch.arange(3.0)}, tmp_path / 'model.safetensors'
    save_file(weights, path)
    assert torch.equal(load(str(path))['a.weight'], weights['a.weight'])


def test_files_have_names_of_their_own_in_the_cache():
    files = {source.file for source in SOURCES.values()}
    assert len(files) == len(SOURCES) - 1  # swin://base and swin://mm-base


def test_timm_weights(monkeypatch):
    made = timm.create_model('xcit_nano_12_p16_224')
    monkeypatch.setattr(timm, 'create_model', lambda name, pretrained: made)
    state = CheckpointLoader.load_checkpoint('timm://xcit_nano_12_p16_224', 'cpu')
    assert torch.equal(state['norm.weight'], made.norm.weight)
