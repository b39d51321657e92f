"""mmengine's stock functions read files safely, and published weights by their names."""

import timm
import torch
from mmengine.runner import CheckpointLoader
from safetensors.torch import save_file

import mmbixt.registry  # noqa: F401
from mmbixt.checkpoints.loader import load
from mmbixt.checkpoints.sources import SOURCES


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
