"""mmengine's stock functions read files safely, and published weights by their names."""

import zipfile
from collections import Counter
from unittest.mock import Mock

import pytest
import torch
from mmengine.registry import MODELS
from mmengine.runner import CheckpointLoader, checkpoint, load_checkpoint
from safetensors.torch import save_file
from test_checkpoints.layouts import random_state, saved, zipped

import mmbixt.registry  # noqa: F401
from mmbixt.checkpoints.errors import BrokenCheckpointError, CheckpointFileError, DownloadError
from mmbixt.checkpoints.loader import load, load_from_timm, register_checkpoint_readers
from mmbixt.checkpoints.sources import SCHEMES, SOURCES, UnknownSourceError, find
from mmbixt.cli import run


@pytest.fixture
def log(monkeypatch):
    log = Mock()
    monkeypatch.setattr('mmbixt.checkpoints.loader.print_log', log)
    return log


def test_readers_of_files_names_and_urls():
    readers = {
        'a/file.pth': load,
        **dict.fromkeys(SCHEMES, load),  # xcit:// and so on
        'timm://name': load_from_timm,
        find('xcit://ade-upernet-tiny12-p8').url: load,  # as in metafiles
        'https://host/file.pth': checkpoint.load_from_http,
        'https://download.openmmlab.com/mmdetection/x.pth': checkpoint.load_from_http,
    }
    for name, reader in readers.items():
        assert CheckpointLoader._get_checkpoint_loader(name) is reader


def test_readers_of_other_packages_are_kept(monkeypatch, log):
    monkeypatch.setitem(CheckpointLoader._schemes, 'xcit://', checkpoint.load_from_http)
    register_checkpoint_readers()
    assert CheckpointLoader._schemes['xcit://'] is checkpoint.load_from_http
    assert 'load_from_http, not by mmbixt' in log.call_args.args[0]


def test_home_directory(save, tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    save({'state_dict': torch.nn.Linear(2, 2).state_dict()})
    load_checkpoint(torch.nn.Linear(2, 2), '~/saved.pth', strict=True)


def test_safetensors(tmp_path):
    weights, path = {'a.weight': torch.arange(3.0)}, tmp_path / 'model.safetensors'
    save_file(weights, path)
    assert load(str(path)).keys() == {'a.weight'}
    assert torch.equal(load(str(path))['a.weight'], weights['a.weight'])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BrokenCheckpointError, match=r'model\.safetensors .* may be incomplete'):
        load(str(path))


def test_which_of_two_sets_of_weights_is_used_is_said(save, log):
    ones, twos = ({'a': torch.full((2,), value)} for value in (1, 2))
    load(save({'model': ones, 'epoch': 3}))
    assert not log.called
    file = save({'model_ema': twos, 'model': ones})
    assert load(file)['state_dict']['a'].tolist() == [1, 1]
    assert log.call_args.args[0] == f"{file}: 'model' is used, not 'model_ema'."


def test_weights_that_are_nan(save, log):
    file = save({'a': torch.tensor([1, torch.nan]), 'b': torch.ones(2), 'n': torch.tensor(3)})
    load(file)
    assert log.call_args.args[0] == f'{file} has NaN in 1 of 3 weights: a.'


@pytest.fixture
def publish(server, cache, monkeypatch):
    """Serve a state dict from the local server under the name of published weights."""

    def publish(name, state):
        source = find(name)
        content = saved({'model': state})
        if source.is_zip:
            content = zipped({'exported/model.pth': content}, zipfile.ZIP_STORED)
        path = source.url.rsplit('/', 1)[1]
        server.files[path] = content
        monkeypatch.setitem(SOURCES, name, source._replace(url=server.url(path)))

    return publish


def arguments(source):
    """The model of a source as a config."""
    component, arguments = source.fills.split(' on ')[-1].split(': ')
    return dict(type=component, **eval(f'dict({arguments})'))


def test_published_file_through_init_cfg(publish, server):
    name, state = 'bixt://tiny-16', random_state('bixt_ti_l64_p16')
    publish(name, state)
    init_cfg = dict(type='Pretrained', checkpoint=name)
    backbone = MODELS.build({**arguments(SOURCES[name]), 'init_cfg': init_cfg})
    backbone.init_weights()
    own = backbone.state_dict()
    assert all(torch.equal(own[key], state[key]) for key in own if own[key].is_floating_point())
    CheckpointLoader.load_checkpoint(name)
    assert server.requests == 1


def test_table():
    url = 'https://dl.fbaipublicfiles.com/xcit/'
    source = find('xcit://ade-semfpn-small12-p16')
    assert source.url == f'{url}ade/sem_fpn_xcit_small_12_p16.pth'
    assert source.figure == 'mIoU 43.9'
    assert find('xcit://large24-p8-384-dist').url == f'{url}xcit_large_24_p8_384_dist.pth'
    bixt = find('bixt://tiny-16-d13-384')
    assert (bixt.url[-8:], bixt.figure) == ('52882955', 'top-1 82.15')
    count = Counter(name.split('://')[0] for name in SOURCES)
    assert count.items() >= dict(bixt=17, xcit=42 + 4 + 24, biformer=5, swin=6).items()
    files = {source.file for source in SOURCES.values()}
    assert len(files) == len(SOURCES) - 1  # swin://base and swin://mm-base


def test_unknown_name_lists_similar_ones():
    with pytest.raises(UnknownSourceError, match=r'(?s)xcit://tiny12-p16.*tools/list_weights\.py'):
        CheckpointLoader.load_checkpoint('xcit://tiny_12_p16')


def test_broken_links_are_explained_without_a_traceback(publish, server, cache):
    publish('biformer://small', {})
    server.files.clear()
    with pytest.raises(SystemExit) as caught:
        run(lambda: CheckpointLoader.load_checkpoint('biformer://small'))
    path = str(cache / 'biformer-small.pth')
    for part in ('DownloadError', '404', 'broken since March 2026', '/path/to/file.pth', path):
        assert part in str(caught.value)


TIMM = {  # name: error without a connection
    'xcit_tiny_12_p16': (UnknownSourceError, r'timm\.list_pretrained'),
    'flexivit_base.300ep_in1k': (CheckpointFileError, 'has its own format'),
    'xcit_tiny_12_p16_224': (DownloadError, r'no route\n.*/path/to/file\.pth'),
}


@pytest.mark.parametrize('name', TIMM)
def test_timm_weights(monkeypatch, name):
    error, message = TIMM[name]
    hub = Mock(side_effect=[ConnectionError('no route'), {'w': torch.ones(2)}])
    monkeypatch.setattr('timm.models.load_state_dict_from_hf', hub)
    with pytest.raises(error, match=message):
        CheckpointLoader.load_checkpoint(f'timm://{name}')
    if error is DownloadError:
        assert CheckpointLoader.load_checkpoint(f'timm://{name}', 'cpu')['w'].sum() == 2
        hub.assert_called_with('timm/xcit_tiny_12_p16_224.fb_in1k', weights_only=True)
