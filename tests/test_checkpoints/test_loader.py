"""mmengine's stock functions read files safely, and published weights by their names."""

import pytest
import timm
import torch
from mmengine.runner import CheckpointLoader, load_checkpoint
from safetensors.torch import save_file

import mmbixt.registry  # noqa: F401
from mmbixt.checkpoints.errors import CheckpointFileError
from mmbixt.checkpoints.loader import load
from mmbixt.checkpoints.sources import SOURCES


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


def test_files_have_names_of_their_own_in_the_cache():
    files = {source.file for source in SOURCES.values()}
    assert len(files) == len(SOURCES) - 1  # swin://base and swin://mm-base


def test_timm_weights(monkeypatch):
    made = timm.create_model('xcit_nano_12_p16_224')
    monkeypatch.setattr(timm, 'create_model', lambda name, pretrained: made)
    state = CheckpointLoader.load_checkpoint('timm://xcit_nano_12_p16_224', 'cpu')
    assert torch.equal(state['norm.weight'], made.norm.weight)
