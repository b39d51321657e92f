"""mmengine's stock functions read files safely, and published weights by their names."""

import zipfile

import pytest
import timm
import torch
from mmengine.registry import MODELS
from mmengine.runner import CheckpointLoader, load_checkpoint
from safetensors.torch import save_file
from test_checkpoints.layouts import random_state, saved, zipped

import mmbixt.registry  # noqa: F401
from mmbixt.checkpoints.errors import CheckpointFileError
from mmbixt.checkpoints.loader import load
from mmbixt.checkpoints.sources import SOURCES, find


def test_a_missing_file_is_named_and_the_home_directory_is_known(save, tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    save({'state_dict': torch.nn.Linear(2, 2).state_dict()})
    load_checkpoint(torch.nn.Linear(2, 2), '~/saved.pth', strict=True)
    with pytest.raises(FileNotFoundError, match=r'checkpoint file .*other\.pth'):
        load_checkpoint(torch.nn.Linear(2, 2), '~/other.pth')


def test_safetensors(tmp_path):
    weights, path = {'a.weight': torch.arange(3.0)}, tmp_path / 'model.safetensors'
    save_file(weights, path)
    assert torch.equal(load(str(path))['a.weight'], weights['a.weight'])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointFileError, match=r'model\.safetensors cannot be read'):
        load(str(path))


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


def test_published_file_through_init_cfg(publish, server):
    name, state = 'bixt://tiny-16', random_state('bixt_ti_l64_p16')
    publish(name, state)
    component, arguments = SOURCES[name].fills.split(': ')
    init_cfg = dict(type='Pretrained', checkpoint=name)
    config = dict(type=component, init_cfg=init_cfg, **eval(f'dict({arguments})'))
    backbone = MODELS.build(config)
    backbone.init_weights()
    own = backbone.state_dict()
    assert all(torch.equal(own[key], state[key]) for key in own if own[key].is_floating_point())
    CheckpointLoader.load_checkpoint(name)
    assert server.requests == 1


def test_files_have_names_of_their_own_in_the_cache():
    files = {source.file for source in SOURCES.values()}
    assert len(files) == len(SOURCES) - 1  # swin://base and swin://mm-base


def test_unknown_name_lists_similar_ones():
    with pytest.raises(CheckpointFileError, match=r'(?s)xcit://tiny12-p16.*tools/list_weights\.py'):
        CheckpointLoader.load_checkpoint('xcit://tiny_12_p16')


def test_timm_weights(monkeypatch):
    made = timm.create_model('xcit_nano_12_p16_224')
    monkeypatch.setattr(timm, 'create_model', lambda name, pretrained: made)
    state = CheckpointLoader.load_checkpoint('timm://xcit_nano_12_p16_224', 'cpu')
    assert torch.equal(state['norm.weight'], made.norm.weight)
