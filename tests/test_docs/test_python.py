"""The Python in the documentation: programs run, configs are right."""

from itertools import product

import cv2
import numpy as np
import pytest
import torch
from documents import ROOT, blocks, shown
from helpers import CONFIGS, IS_FORK, put_segmentor_in_cache, python, unused_parameters
from mmengine import registry
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from running import fresh_mmengine

from mmbixt.checkpoints.sources import find
from mmbixt.config import all_dicts

BLOCKS = blocks('python')
WHOLE_MODEL = 'sem_fpn_xcit_tiny_12_p16'  # in place of the small one of the documents


def test_every_program_is_run_by_a_test():
    """After a comment ``<!-- tested: KIND -->``, by the test that asks for this kind."""
    folders = 'tests/test_*', 'projects/*/tests'
    tests = ''.join(path.read_text() for x in folders for path in ROOT.glob(f'{x}/*.py'))
    programs = [block for block in BLOCKS if block.is_program]
    assert [x.place for x in programs if f"shown('{x.kind}')" not in tests] == []


channels_of_fork = pytest.mark.xfail(
    IS_FORK, reason='its SegDataPreProcessor takes means of one or three channels', strict=True
)


@pytest.mark.parametrize(
    'block',
    [
        pytest.param(b, marks=channels_of_fork if b.kind == 'channels' else (), id=b.place)
        for b in BLOCKS
        if not b.is_program
    ],
)
def test_config_is_right(block, tmp_path):
    """Types and weights exist; parts of whole models fit together."""
    if block.place.startswith('docs/openmmlab.md'):  # their bases are in other projects
        names = {}
        exec(block.code, names)
        backbone = names['model']['backbone']
        del backbone['_delete_']
        find(backbone.pop('init_cfg')['checkpoint'])
        without_weights(backbone, 'mmseg')
        return
    for other in (*(b for b in BLOCKS if str(b.kind).endswith('.py')), block):
        name = other.kind if str(other.kind).endswith('.py') else 'config.py'
        (tmp_path / name).write_text(other.code)
    (tmp_path / 'projects').symlink_to(ROOT / 'projects')
    cfg, code = Config.fromfile(tmp_path / name), block.code
    for node in all_dicts(dict(cfg.items())):
        if node.get('type') == 'Pretrained' and '://' in node.checkpoint:
            find(node.checkpoint)
    if '_base_ = ' in code:
        for node in all_dicts(cfg.model):
            node.pop('init_cfg', None)
        if 'LoRAModel' in code:  # whose own check asks for weights
            cfg.model.backbone = cfg.model.backbone.module
        without_weights(cfg.model, cfg.default_scope)
        return
    for node in all_dicts(dict(cfg.items())):
        assert 'type' not in node or is_registered(node.type), node.type


def is_registered(kind):
    """Whether any registry has a type."""
    registries = [x for x in vars(registry).values() if isinstance(x, registry.Registry)]
    for scope, one in product(('mmseg', 'mmdet', 'mmpretrain'), registries):
        with one.switch_scope_and_registry(scope) as there:
            if there.get(kind):
                return True
    return False


def without_weights(config, scope):
    with registry.DefaultScope.overwrite_default_scope(scope), torch.device('meta'):
        return MODELS.build(config)


USER_CONFIGS = {
    'README': ('mmdet', shown('mmdet')[0]),
    'semfpn': ('mmseg', *shown('mmseg')),
    'cascade': ('mmdet', shown('mmdet')[1]),
    'detr': ('mmdet', shown('mmdet')[2]),
    'classifier': ('mmpretrain', *shown('mmpretrain')),
}


@pytest.mark.parametrize('name', USER_CONFIGS)
def test_config_of_a_user_builds_and_uses_every_parameter(name):
    scope, snippet = USER_CONFIGS[name]
    cfg = Config.fromstring(snippet, '.py')
    cfg.model.backbone.init_cfg = None
    init_default_scope(scope)
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    if name == 'README':  # not the optimizer of a ResNet
        wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
        assert type(wrapper.optimizer).__name__ == 'AdamW'
        assert wrapper.clip_grad_kwargs == dict(max_norm=1.0)
    unused = unused_parameters(model, ['decode_head', 'auxiliary_head'])
    assert [key for key in unused if key.startswith(('backbone', 'neck', 'decode_head'))] == []
    with torch.no_grad():
        levels = model.eval().extract_feat(torch.empty(1, 3, 64, 96, device='meta'))
    if scope == 'mmpretrain':
        assert [x.shape for x in levels] == [(1, model.head.in_channels)]
        return
    stride = 8 if scope == 'mmdet' and 'cascade' not in name else 4
    expected = [(256, 64 // stride, 96 // stride), (256, 32 // stride, 48 // stride)]
    assert [tuple(x.shape[1:]) for x in levels[:2]] == expected


def test_layer_decay():
    config = CONFIGS / 'xcit/semfpn_xcit_t12_p16_ade20k.py'
    cfg = Config.fromstring(f'_base_ = {str(config)!r}\n{shown("layer decay")[0]}', '.py')
    init_default_scope('mmseg')
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    groups = build_optim_wrapper(model, cfg.optim_wrapper).optimizer.param_groups
    assert {round(group['lr'] / 6e-5, 6) for group in groups} >= {1.0, 0.9, 0.81}


@pytest.fixture(scope='module')
def project(tmp_path_factory):
    """A user's folder: photos, the authors' weights as a file and in the cache, and configs."""
    folder = tmp_path_factory.mktemp('user')
    (folder / 'photos').mkdir()
    torch.save(put_segmentor_in_cache(folder), folder / f'{WHOLE_MODEL}.pth')
    for path in ('.', 'photos'):
        cv2.imwrite(str(folder / path / 'photo.jpg'), np.zeros((72, 100, 3), np.uint8))
    (folder / 'configs').symlink_to(CONFIGS)
    for name in ('semfpn_xcit_t12_p16_ade20k.py', 'maskrcnn_xcit_t12_p16_3x_coco.py'):
        cfg = Config.fromfile(CONFIGS / 'xcit' / name)
        cfg.test_dataloader.dataset.pipeline[1].scale = (192, 128)  # smaller images
        cfg.dump(str(folder / name))  # as mim download does
    return folder


def test_adapters():
    """Two matrices learn for each of two layers of twelve blocks."""
    init_default_scope('mmseg')
    config = Config.fromstring(shown('adapters')[0], '.py').model.backbone
    config.module.init_cfg = None
    learning = [key for key, p in MODELS.build(config).named_parameters() if p.requires_grad]
    assert len(learning) == 2 * 2 * 12
    assert all('.lora_' in key for key in learning)


@pytest.mark.zoo
def test_inherits_without_an_import(tmp_path):
    """Read by mmengine alone, as in the stock tools."""
    (tmp_path / 'mine.py').write_text(shown('inherit')[0])
    code = 'from mmengine import Config; print(Config.fromfile("mine.py").model.backbone.type)'
    assert python('-W', 'ignore', '-c', code, cwd=tmp_path) == 'mmbixt.XCiT\n'


def test_predictions(project, monkeypatch):
    """With a smaller model than in the docs."""
    (code,), found = shown('predict'), {}
    monkeypatch.chdir(project)
    monkeypatch.setenv('TORCH_HOME', str(project))
    code = code.replace('xcit_s12', 'xcit_t12').replace('small', 'tiny')
    with fresh_mmengine():
        exec(code, found)
    assert found['labels'].shape == found['probabilities'].shape == (72, 100)


def test_detection(project, monkeypatch, capsys):
    """The file has only backbone and neck; mmengine warns that the heads are random."""
    monkeypatch.chdir(project)
    (snippet,), found = shown('detect'), {}
    snippet = snippet.replace("'maskrcnn_xcit_small_12_p16.pth'", f"'{WHOLE_MODEL}.pth'")
    with fresh_mmengine():
        exec(snippet.replace('maskrcnn_xcit_s12', 'maskrcnn_xcit_t12'), found)
    assert isinstance(found['boxes'], list)
    assert 'unexpected key in source state_dict: backbone' not in capsys.readouterr().out


def test_hub(project, monkeypatch):
    (code,), found = shown('hub'), {}
    monkeypatch.setenv('TORCH_HOME', str(project))
    with fresh_mmengine():
        exec(code.replace('s12', 't12'), found)
    saved = torch.load(project / f'{WHOLE_MODEL}.pth')['state_dict']
    key = 'backbone.blocks.3.attn.qkv.weight'
    assert torch.equal(found['model'].state_dict()[key], saved[key])


def test_torchvision():
    """A detector trains: every parameter has a gradient."""
    (code,), found = shown('torchvision'), {}
    exec(code, found)
    model = found['model']
    model.transform.min_size = (64,)
    target = dict(boxes=torch.tensor([[10.0, 10.0, 50.0, 60.0]]), labels=torch.tensor([1]))
    sum(model([torch.rand(3, 64, 96)], [target]).values()).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_timm():
    (code,), found = shown('timm'), {}
    exec(code, found)
    assert found['logits'].shape == (1, 10)
    assert found['strides'] == [4, 8, 16, 32]
    assert [x.shape[-1] for x in found['feature_maps']] == [56, 28, 14, 7]
