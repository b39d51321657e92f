"""The authors' files load as they are, and give the authors' logits."""

import argparse
import pickle

import pytest
import timm
import torch
from helpers import assert_close, golden, image, official_state, put_in_cache, python
from test_checkpoints.layouts import LOGITS, random_state
from timm.models import save_for_hf

import mmbixt.timm  # noqa: F401 (for the names)
from mmbixt.backbones import BiSASwin
from mmbixt.checkpoints.sources import SOURCES


def from_file(name, file, **options):
    overlay = dict(file=str(file))
    return timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, **options)


NAMES = (  # of LOGITS in timm
    *('xcit_tiny_12_p16_pyramid', 'bixt_ti_l64_p16', 'bixt_ti_cnv_l64_p16_pyramid'),
    *('biformer_tiny', 'biformer_stl', 'bisa_swin_tiny'),
)


@torch.no_grad()
@pytest.mark.parametrize(('layout', 'name'), zip(LOGITS, NAMES, strict=True))
def test_golden(layout, name, tmp_path):
    values, batch, side, container, options = LOGITS[layout]
    state = official_state(layout)
    content = {container: state, 'args': argparse.Namespace(lr=1.0)} if container else state
    torch.save(content, tmp_path / 'file.pth')
    x = image(batch, side, side)
    model = from_file(name, tmp_path / 'file.pth', **options).eval()
    assert golden(f'{layout}__{values}').check('logits', model(x).numpy()) < 2e-5
    other = from_file(name, tmp_path / 'file.pth', num_classes=3, in_chans=1, **options).eval()
    assert other(x[:, :1]).shape == (batch, 3)
    net = from_file(name, tmp_path / 'file.pth', features_only=True, **options)
    loaded, expected = net.model.state_dict(), model.state_dict()
    last = next(key for key in reversed(loaded) if key in expected)
    assert torch.equal(loaded[last], expected[last])


@torch.no_grad()
@pytest.mark.parametrize('name', ['bixt_ti_l64_p16', 'bisa_swin_tiny'])
def test_folder(name, tmp_path):
    """As timm pushes a model to the Hugging Face hub, and reads a folder."""
    model = timm.create_model(name, num_classes=5).eval()
    save_for_hf(model, tmp_path, model_config=dict(tags=['mine']))
    again = timm.create_model(f'local-dir:{tmp_path}', pretrained=True).eval()
    for other in (again, pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(image(1, 64, 64)), model(image(1, 64, 64)))


@torch.no_grad()
def test_file_of_openmmlab():
    """A classifier of mmpretrain of 10 classes: backbone, neck, head.fc."""
    state = timm.create_model('bisa_swin_tiny', num_classes=10).state_dict()
    state = {f'backbone.{key}'.replace('backbone.head.', 'head.fc.'): x for key, x in state.items()}
    overlay = dict(state_dict=state)
    options = dict(pretrained=True, pretrained_cfg_overlay=overlay, num_classes=10)
    model = timm.create_model('bisa_swin_tiny', **options)
    assert torch.equal(model.head.weight, state['head.fc.weight'])
    assert torch.equal(model.norm3.weight, state['backbone.norm3.weight'])


@torch.no_grad()
@pytest.mark.parametrize('layout', ['swin_tiny_microsoft', 'swin_tiny_timm'])
def test_bisa_swin_from_swin(layout, tmp_path):
    """A fine-tuning may start from Swin; with ``lam=1`` it is one."""
    state = random_state(layout)
    torch.save({'model': state}, tmp_path / 'swin.pth')
    model = from_file('bisa_swin_tiny', tmp_path / 'swin.pth', lam=1).eval()
    backbone = BiSASwin(bisa_stages=(), shift_single_window=False, out_indices=(3,)).eval()
    backbone.load_state_dict(state, strict=False)  # norm3 is new
    backbone.norm3.load_state_dict(model.norm3.state_dict())
    assert_close(model.forward_features(image(1, 64, 64)), *backbone(image(1, 64, 64)))
    assert torch.equal(model.norm3.weight, state['norm.weight'])
    from_file('bisa_swin_tiny', tmp_path / 'swin.pth', lam='learned', lam_init=0.99)


@pytest.mark.parametrize(
    ('name', 'source', 'layout'),
    [
        ('bixt_ti_l64_p16', 'bixt://tiny-16', 'bixt_ti_l64_p16'),
        ('bixt_ti_l64_p16_pyramid.in1k_384', 'bixt://tiny-16-384', 'bixt_ti_l64_p16'),
        ('xcit_nano_12_p8_pyramid.dist_in1k', 'xcit://nano12-p8-dist', 'xcit_nano_12_p8'),
    ],
)
def test_pretrained(name, source, layout, tmp_path, monkeypatch):
    """From the cache of mmbixt's downloader."""
    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    state = random_state(layout)
    put_in_cache(source, {'model': state}, tmp_path)
    model = timm.create_model(name, pretrained=True)
    assert torch.equal(model.head.weight, state['head.weight'])
    assert model.default_cfg['input_size'][-1] == (384 if '384' in name else 224)


def test_all_published_files_have_a_name():
    """Of BiXT and XCiT; those of XCiT without labels have no classifier."""
    urls = {timm.get_pretrained_cfg(name).url for name in timm.list_pretrained('*_pyramid*')}
    expected = {
        source.url
        for name, source in SOURCES.items()
        if source.what.startswith('ImageNet') and source.name.startswith(('bixt', 'xcit'))
        if not name.endswith('dino')
    }
    assert urls == expected


WITHOUT = """
import sys
for name in ('mmengine', 'mmcv', 'mmseg', 'mmdet', 'mmpretrain'):
    sys.modules[name] = None
import mmbixt.timm, timm, torch
names = 'bixt_ti_l64_p16_pyramid', 'xcit_nano_12_p16_pyramid', 'biformer_tiny', 'bisa_swin_tiny'
for name in names:
    assert len(timm.create_model(name, features_only=True)(torch.rand(1, 3, 64, 64))) == 4
"""


@pytest.mark.zoo
def test_without_openmmlab():
    python('-c', WITHOUT)


SCRIPT = """
import sys, timm
assert __name__ == '__main__' and sys.argv[1:] == ['--model', 'biformer_tiny']
assert timm.is_model(sys.argv[2])
import beside
print('DONE')
"""


@pytest.mark.zoo
def test_runs_scripts_of_timm(tmp_path):
    (tmp_path / 'beside.py').write_text('')
    (tmp_path / 'train.py').write_text(SCRIPT)
    arguments = (tmp_path / 'train.py', '--model', 'biformer_tiny')
    assert 'DONE' in python('-m', 'mmbixt.timm', *arguments)
