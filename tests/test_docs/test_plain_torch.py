"""The programs in docs/plain_torch.md, in its order, and that of transformers."""

import os
import sys
from pathlib import Path

import pytest
import torch
from documents import ROOT, shown
from helpers import assert_close, image, official_state, put_in_cache, python
from onnxruntime import InferenceSession
from test_checkpoints.layouts import random_state

# with peft and transformers, see requirements/peft.txt
PATHS = os.pathsep.join(map(str, (ROOT, ROOT / 'tests', Path(sys.prefix, 'peft'))))


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What the page has defined after the training step of its segmentor."""
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(shown('plain features')[0], names)
    exec(shown('plain segmentor')[0], names)
    return names


def test_page(names):
    assert [x.shape[-1] for x in names['pyramid'](names['images'])] == [72, 36, 18, 9]
    assert [x.shape[1:] for x in names['maps']] == [(128, 14, 18)] * 4
    assert [key for key, p in names['model'].named_parameters() if p.grad is None] == []

    state, weight = official_state('xcit_nano_12_p16'), 'blocks.3.attn.qkv.weight'
    torch.save({'model': state}, 'weights.pth')
    exec(shown('plain weights')[0].replace('xcit://nano12-p16', 'weights.pth'), names)
    assert torch.equal(torch.load('segmentor.pth')[f'backbone.{weight}'], state[weight])
    assert names['classifier'].num_classes == 10
    assert names['classifier'].stages[0][0].attn.num_regions == 8


@pytest.mark.zoo
def test_lora():
    script = Path(__file__).parent / 'lora_of_page.py'
    said = python('-W', 'ignore', script, PYTHONPATH=PATHS).splitlines()
    assert said[-4:] == ['XCiT', 'BiXT', 'BiFormer', 'BiSASwin']


@pytest.mark.zoo
@torch.no_grad()
def test_compile_and_export(names):
    small = names['XCiT'](dict(embed_dims=16, num_heads=2, depth=2))
    model = names['model'] = names['Segmentor'](small, 5)
    exec(shown('plain export')[0], names)
    assert_close(names['logits'], model(names['images']))
    x = image(1, 300, 250)
    expected = model(x)
    assert_close(names['program'].module()(x), expected)
    assert names['other_logits'].shape == expected.shape
    (found,) = InferenceSession('segmentor.onnx').run(None, {'images': x.numpy()})
    assert_close(torch.from_numpy(found), expected)


@pytest.mark.zoo
def test_transformers(tmp_path):
    """With the authors' weights in the cache, in the place of a download."""
    state, weight = random_state('bixt_ti_l64_p16'), 'latents'
    put_in_cache('bixt://tiny-16', state, tmp_path)
    code = f"""{shown('transformers')[0]}
import torch
images, labels = torch.randn(2, 3, 64, 96), torch.randint(11, (2, 64, 96))
model(images, labels=labels).loss.backward()
assert [key for key, p in model.named_parameters() if p.grad is None] == []
torch.save(model.state_dict(), 'state.pth')
"""
    python('-W', 'ignore', '-c', code, cwd=tmp_path, PYTHONPATH=PATHS, TORCH_HOME=str(tmp_path))
    saved = torch.load(tmp_path / 'state.pth')
    (key,) = (key for key in saved if key.endswith(f'.{weight}'))
    assert torch.equal(saved[key], state[weight])
