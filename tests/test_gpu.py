"""On a GPU, attentions and networks are as exact as by their definitions, however they are run.

``make test-gpu`` runs all of it. On the CPU, what takes seconds runs with the ordinary tests, and
the rest with the zoo's.
"""

from itertools import product

import pytest
import torch
from cases import BACKBONES, CASES, MODULES, learned, next_regions
from helpers import formulation
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from parity import PRECISIONS, WAYS, assert_as_exact
from random_labels import random_labels
from running import fresh_mmengine
from variants import NETWORKS

from mmbixt.attention import routing
from mmbixt.config import read_config
from mmbixt.layers.definition import is_by_definition

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason='torch finds no GPU')
ON_GPU = [pytest.mark.gpu, NO_GPU]
QUICK = 'fp32', 'bf16'
ON_CPU = (*QUICK, 'amp bf16')


def runs(cases):
    """In every way on a GPU; on the CPU only eager, and without the networks of full size."""
    for name, way, precision in product(cases, WAYS, PRECISIONS):
        # inductor takes minutes for networks; CompileLayersHook compiles layers, too
        if way != 'compiled' or (name in MODULES and precision == 'amp bf16'):
            yield pytest.param(name, way, precision, 'cuda', marks=ON_GPU)
        if way == 'eager' and precision in ON_CPU and name not in NETWORKS:
            marks = [] if precision in QUICK else [pytest.mark.zoo]
            yield pytest.param(name, way, precision, 'cpu', marks=marks)


def parametrize(cases):
    return pytest.mark.parametrize(('name', 'way', 'precision', 'device'), list(runs(cases)))


@parametrize(CASES)
def test_attentions(name, way, precision, device):
    assert_as_exact(CASES[name], PRECISIONS[precision], way, device)


@parametrize(BACKBONES)
def test_backbones(name, way, precision, device, monkeypatch):
    monkeypatch.setattr(routing, 'route', next_regions)
    assert_as_exact(BACKBONES[name], PRECISIONS[precision], way, device)


WRONG = {
    'off by 2 %': lambda x: 1.02 * x,
    'a gradient that is NaN': lambda x: x + (x - x.detach()).abs().sqrt(),
    'dtype': lambda x: x.double(),
    'no gradient': lambda x: x.detach(),
}


@pytest.mark.parametrize('name', WRONG)
def test_mistakes_are_seen(name):
    def compute(x, y):
        return (x if is_by_definition() else WRONG[name](x)) * y

    with pytest.raises(AssertionError):
        assert_as_exact(lambda: (compute, learned((50,), (50,))), PRECISIONS['bf16'])


# --- Losses of the frameworks ---------------------------------------------------------------------

LOSSES = (  # configs, one of each kind; the first ones take little time
    *('linear_bixt_ti_ade20k', 'semfpn_xcit_t12_p16_ade20k', 'bixt_ti_l64_d13_p16_in1k'),
    *('retinanet_biformer_t_1x_coco', 'maskrcnn_xcit_t12_p16_3x_coco'),
    'upernet_bisa_swin_t_ade20k',
)


def steps():
    for name, precision in product(LOSSES, ('fp32', 'amp bf16', 'amp fp16')):
        if name.endswith('coco') and precision == 'amp bf16':  # mmcv's operators do not know it
            continue
        yield pytest.param(name, precision, 'cuda', marks=ON_GPU)
        if precision != 'amp fp16':  # which takes CPUs a minute
            yield pytest.param(
                name, precision, 'cpu', marks=[pytest.mark.zoo] * (name not in LOSSES[:3])
            )


def loss_of(name, device, size=(96, 128)):
    """The model of a config, and its loss of two images as a function."""
    torch.manual_seed(0)
    cfg = read_config(name)
    scope = cfg.default_scope
    pytest.importorskip(scope)
    cfg.model.backbone.init_cfg = None
    with torch.device(device), fresh_mmengine():
        init_default_scope(scope)
        model = revert_sync_batchnorm(MODELS.build(cfg.model)).train()
        images, labels = torch.randn(2, 3, *size), [random_labels(scope, size) for _ in range(2)]
    return model, lambda: model.parse_losses(model.loss(images, labels))[0]


@pytest.mark.parametrize(('name', 'precision', 'device'), list(steps()))
def test_losses(name, precision, device):
    """As by the definitions, with finite gradients of all parameters."""
    dtype, losses = PRECISIONS[precision].autocast, {}
    for path in ('definition', 'fast'):
        model, compute = loss_of(name, device)
        with formulation(path), torch.autocast(device, dtype, enabled=dtype is not None):
            losses[path] = compute()
    losses['fast'].backward()
    assert [n for n, p in model.named_parameters() if not p.grad.isfinite().all()] == []
    assert float(losses['fast']) == pytest.approx(float(losses['definition']), rel=0.05)
