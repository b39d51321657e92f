"""CUDA graphs and compiled layers change how a training runs, not what it computes."""

from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from random_labels import random_labels
from running import fresh_mmengine, make_loader
from torch import nn
from torch._dynamo.utils import counters
from variants import VARIANTS, build

from mmbixt.config import read_config
from mmbixt.engine.compile_layers import compile_layers
from mmbixt.engine.cuda_graphs import by_shape, obstacle, shapes

GRAPHS, COMPILED = dict(type='mmbixt.CUDAGraphsHook'), dict(type='mmbixt.CompileLayersHook')
HOOKS = {'graphs': [GRAPHS], 'compiled': [COMPILED], 'both': [COMPILED, GRAPHS]}
BACKBONES = {  # the backbone with few layers of usual width
    'semfpn_xcit_t12_p16_ade20k': dict(out_indices=(0, 1, 2, 3), drop_path_rate=0.0),
    'linear_bixt_ti_ade20k': dict(out_indices=(3,), drop_path_rate=0.0),
}
PRECISIONS = {
    'fp32': dict(type='OptimWrapper'),
    'bf16': dict(type='mmbixt.BFloat16OptimWrapper'),
    'fp16': dict(type='AmpOptimWrapper', dtype='float16', loss_scale='dynamic'),
}


class Losses(Hook):
    def __init__(self):
        self.values = []

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        self.values.append(float(outputs['loss']))


def train(folder, config, hooks=(), precision='fp32', epochs=5, **options):
    """The losses of a training with a batch an epoch, and the model; without dropout."""
    torch.manual_seed(0)
    cfg, losses = read_config(config), Losses()
    pytest.importorskip(cfg.default_scope)
    cfg.model.backbone.update({**BACKBONES[config], 'init_cfg': None, **options})
    cfg.model.decode_head.dropout_ratio = 0.0
    cfg.model.data_preprocessor.size = (64, 96)
    images = torch.randint(256, (4, 3, 64, 96), dtype=torch.uint8)
    labels = [random_labels('mmseg', (64, 96)) for _ in images]
    data = [dict(inputs=x, data_samples=y) for x, y in zip(images, labels, strict=True)]
    with fresh_mmengine():
        init_default_scope('mmseg')
        model = revert_sync_batchnorm(MODELS.build(cfg.model))
        runner = Runner(
            model,
            str(folder),
            train_dataloader=make_loader(data, 'DefaultSampler', len(data)),
            train_cfg=dict(type='EpochBasedTrainLoop', max_epochs=epochs),
            optim_wrapper=dict(PRECISIONS[precision], optimizer=dict(type='SGD', lr=0.01)),
            custom_hooks=[*(dict(hook) for hook in hooks), losses],
            default_hooks=dict(checkpoint=None),
            randomness=dict(seed=0),
        )
        runner.train()
    return losses.values, model


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='torch finds no GPU')
@pytest.mark.parametrize('precision', PRECISIONS)
@pytest.mark.parametrize('hooks', HOOKS)
@pytest.mark.parametrize('config', BACKBONES)
def test_losses_on_a_gpu(config, hooks, precision, tmp_path, fresh_compiler):
    """As without the hooks; SGD, because the first steps of AdamW amplify rounding."""
    expected, ordinary = train(tmp_path, config, precision=precision)
    found, model = train(tmp_path, config, HOOKS[hooks], precision)
    tolerance = 1e-4 if precision == 'fp32' else 2e-2
    assert found == pytest.approx(expected, rel=tolerance)
    for ours, theirs in zip(model.buffers(), ordinary.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=10 * tolerance, atol=tolerance)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='torch finds no GPU')
@pytest.mark.parametrize('hooks', HOOKS)
def test_stochastic_depth_drops_other_images_in_each_step(hooks, tmp_path, fresh_compiler):
    name = 'semfpn_xcit_t12_p16_ade20k'
    losses, _ = train(tmp_path, name, HOOKS[hooks], drop_path_rate=0.5)
    assert torch.tensor(losses).isfinite().all()
    assert len(set(losses)) == len(losses)


@pytest.mark.zoo
@pytest.mark.parametrize('config', BACKBONES)
def test_losses_with_compiled_layers(config, tmp_path, fresh_compiler):
    expected, _ = train(tmp_path, config, epochs=10)
    found, _ = train(tmp_path, config, [COMPILED | dict(backend='aot_eager')], epochs=10)
    assert found == pytest.approx(expected, rel=1e-4)


def networks():
    """Full depths and published rates of stochastic depth; narrow."""
    bixt = dict(embed_dims=16, num_heads=2, depth=12)
    config = dict(type='mmbixt.BiXT', arch=bixt, drop_path_rate=0.1)
    yield pytest.param(config, 3, id='bixt', marks=pytest.mark.zoo)
    yield pytest.param(dict(type='mmbixt.XCiT', arch=bixt, drop_path_rate=0.05), 1, id='xcit')
    biformer = dict(embed_dims=(16, 32, 32, 32), depths=(2, 2, 8, 2), topks=(1, 2, 4, -2))
    biformer = dict(type='mmbixt.BiFormer', arch=biformer, num_regions=2, drop_path_rate=0.2)
    yield pytest.param(biformer, 4, id='biformer')
    swin = dict(embed_dims=16, depths=(2, 2, 6, 2), num_heads=(1, 1, 2, 2))
    config = dict(type='mmbixt.BiSASwin', arch=swin, drop_path_rate=0.2)
    yield pytest.param(config, 8, id='bisa', marks=pytest.mark.zoo)


@pytest.mark.parametrize(('config', 'kinds'), list(networks()))
def test_layers_of_a_kind_share_a_program(config, kinds, fresh_compiler):
    backbone = build(config, drop_path_rate=config['drop_path_rate']).train()
    compile_layers(backbone, dynamic=False, backend='aot_eager')
    before = counters['stats']['unique_graphs']
    for _ in range(2):
        sum(x.sum() for x in backbone(torch.randn(2, 3, 128, 128))).backward()
        assert counters['stats']['unique_graphs'] - before == kinds


def test_graphs_are_for_one_shape_with_gradients():
    run = by_shape(lambda *_: 'graph', lambda *_, **__: 'ordinary', shapes((torch.ones(2, 3),)))
    assert run(torch.zeros(2, 3)) == 'graph'
    assert run(torch.zeros(2, 4)) == run(torch.zeros(2, 3).double()) == 'ordinary'
    assert run(torch.zeros(2, 3), training=True) == 'ordinary'
    with torch.no_grad():
        assert run(torch.zeros(2, 3)) == 'ordinary'


SEGMENTOR = nn.ModuleDict(dict(backbone=nn.Conv2d(3, 4, 1), decode_head=nn.Conv2d(4, 2, 1)))
# by what the log says: the model, and settings of the config
REFUSED = {
    'images have many sizes': (nn.ModuleDict(dict(backbone=nn.Conv2d(3, 4, 1))), {}),
    'with_cp': (nn.ModuleDict(dict(head=build(VARIANTS['xcit'], with_cp=True))), {}),
    "drop_path='skip'": (nn.ModuleDict(dict(head=build(VARIANTS['xcit'], drop_path='skip'))), {}),
    'accumulative_counts': (SEGMENTOR, dict(optim_wrapper=dict(accumulative_counts=2))),
    'compile=True': (SEGMENTOR, dict(compile=True)),
}


@pytest.mark.parametrize('text', REFUSED)
def test_obstacles_are_named(text, monkeypatch):
    def problem(model, settings):
        cfg = Config({'optim_wrapper': {}, **settings})
        return obstacle(SimpleNamespace(model=model, cfg=cfg))

    assert torch.cuda.is_available() or problem(SEGMENTOR, {}) == 'torch finds no GPU'
    monkeypatch.setattr('torch.cuda.is_available', lambda: True)
    assert problem(SEGMENTOR, {}) == ''
    assert text in problem(*REFUSED[text])
