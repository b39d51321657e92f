"""CUDA graphs and compiled layers change how a training runs, not what it computes."""

import pytest
import torch
from mmengine.hooks import EMAHook
from torch._dynamo.utils import counters
from training import segmentor, train
from variants import build

from mmbixt.engine.compile_layers import compile_layers

GRAPHS, COMPILED = dict(type='mmbixt.CUDAGraphsHook'), dict(type='mmbixt.CompileLayersHook')
HOOKS = {'graphs': [GRAPHS], 'compiled': [COMPILED], 'both': [COMPILED, GRAPHS]}
BACKBONES = {  # the backbone with few layers of usual width
    'semfpn_xcit_t12_p16_ade20k': dict(out_indices=(0, 1, 2, 3), drop_path_rate=0.0),
    'linear_bixt_ti_ade20k': dict(out_indices=(3,), drop_path_rate=0.0),
}
PRECISIONS = {
    'fp32': {},
    'bf16': dict(type='AmpOptimWrapper', dtype='bfloat16', loss_scale=dict(enabled=False)),
    'fp16': dict(type='AmpOptimWrapper', dtype='float16', loss_scale='dynamic'),
}


def small(config, **options):
    """A segmentor without dropout."""
    return segmentor(config, BACKBONES[config] | options, **{'decode_head.dropout_ratio': 0.0})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='torch finds no GPU')
@pytest.mark.parametrize('precision', PRECISIONS)
@pytest.mark.parametrize('hooks', HOOKS)
@pytest.mark.parametrize('config', BACKBONES)
def test_losses_on_a_gpu(config, hooks, precision, tmp_path, fresh_compiler):
    """As without the hooks; SGD, because the first steps of AdamW amplify rounding."""
    options = PRECISIONS[precision]
    expected, ordinary = train(tmp_path, small(config), **options)
    found, runner = train(tmp_path, small(config), HOOKS[hooks], **options)
    tolerance = 1e-4 if precision == 'fp32' else 2e-2
    assert found == pytest.approx(expected, rel=tolerance)
    for pair in zip(runner.model.buffers(), ordinary.model.buffers(), strict=True):
        torch.testing.assert_close(*pair, rtol=10 * tolerance, atol=tolerance)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='torch finds no GPU')
@pytest.mark.parametrize('hooks', HOOKS)
def test_stochastic_depth_drops_other_images_in_each_step(hooks, tmp_path, fresh_compiler):
    model = small('semfpn_xcit_t12_p16_ade20k', drop_path_rate=0.5)
    losses, _ = train(tmp_path, model, HOOKS[hooks])
    assert torch.tensor(losses).isfinite().all()
    assert len(set(losses)) == len(losses)


@pytest.mark.zoo
@pytest.mark.parametrize('config', BACKBONES)
def test_losses_with_compiled_layers(config, tmp_path, fresh_compiler):
    expected, _ = train(tmp_path, small(config), epochs=10)
    compiled = COMPILED | dict(backend='aot_eager')
    found, _ = train(tmp_path, small(config), [compiled], epochs=10)
    assert found == pytest.approx(expected, rel=1e-4)


def test_averages_of_weights_beside_compiled_layers(tmp_path, fresh_compiler):
    """The average has the model's batch norms, in its order of buffers."""
    ema = EMAHook(momentum=0.1)
    model = small('semfpn_xcit_t12_p16_ade20k', drop_path_rate=0.2)
    _, runner = train(tmp_path, model, [COMPILED | dict(backend='eager'), ema], epochs=2)
    average = dict(ema.ema_model.module.named_buffers())
    buffers = dict(runner.model.named_buffers())
    assert average.keys() == buffers.keys()
    for name, value in average.items():
        torch.testing.assert_close(value, buffers[name])


# full depths and published rates of stochastic depth; narrow
BIFORMER = dict(embed_dims=(16, 32, 32, 32), depths=(2, 2, 8, 2), topks=(1, 2, 4, -2))
SWIN = dict(embed_dims=16, depths=(2, 2, 6, 2), num_heads=(1, 1, 2, 2))
KINDS = [
    pytest.param(dict(type='mmbixt.BiFormer', arch=BIFORMER, num_regions=2), 4, id='biformer'),
    pytest.param(dict(type='mmbixt.BiSASwin', arch=SWIN), 8, id='bisa', marks=pytest.mark.zoo),
]


@pytest.mark.parametrize(('config', 'kinds'), KINDS)
def test_layers_of_a_kind_share_a_program(config, kinds, fresh_compiler):
    backbone = build(config, drop_path_rate=0.2).train()
    compile_layers(backbone, dynamic=False, backend='aot_eager')
    before = counters['stats']['unique_graphs']
    for _ in range(2):
        sum(x.sum() for x in backbone(torch.randn(2, 3, 128, 128))).backward()
        assert counters['stats']['unique_graphs'] - before == kinds
