"""Forward passes on CUDA tensors without data: devices and dtypes are right, no values are read."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from helpers import others_in_zoo
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from parity import PRECISIONS, Precision
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from training import SIZE, classifier, samples_of, segmentor
from variants import FAMILIES, VARIANTS, build

from mmbixt.engine.cuda_graphs import BatchLoss


@contextmanager
def fake_gpu(precision: Precision) -> Iterator[None]:
    """Autocast is set without ``torch.autocast``, which does nothing where there is no GPU."""
    before = torch.get_default_dtype(), torch.get_autocast_dtype('cuda')
    torch.set_default_dtype(precision.dtype)
    torch.set_autocast_enabled('cuda', precision.autocast is not None)
    torch.set_autocast_dtype('cuda', precision.autocast or before[1])
    try:
        with FakeTensorMode(), torch.device('cuda'):
            yield
    finally:
        torch.set_default_dtype(before[0])
        torch.set_autocast_enabled('cuda', False)
        torch.set_autocast_dtype('cuda', before[1])


def check(precision: Precision, config: dict, size: tuple[int, int], **options: Any) -> None:
    with fake_gpu(precision):
        network = build(config, **options).train()
        results = network(torch.randn(2, 3, *size))
    assert {x.device.type for x in results} == {'cuda'}
    assert {x.dtype for x in results} <= {precision.dtype, precision.autocast}


@pytest.mark.parametrize('precision', others_in_zoo(PRECISIONS, ['amp fp16']))
@pytest.mark.parametrize('size', others_in_zoo([(64, 64), (57, 90)], [(57, 90)]))
@pytest.mark.parametrize('name', VARIANTS)
def test_backbones(name, size, precision):
    check(PRECISIONS[precision], VARIANTS[name], size)
    if name in FAMILIES:
        options = dict(drop_path_rate=0.3, with_cp=True)
        check(PRECISIONS[precision], VARIANTS[name], size, **options)


# --- Losses of a batch ----------------------------------------------------------------------------

BATCHES = {  # the model and the framework of one of each kind
    'linear head': (partial(segmentor, 'linear_bixt_ti_ade20k'), 'mmseg'),
    'SemanticFPN': (partial(segmentor, 'semfpn_xcit_t12_p16_ade20k'), 'mmseg'),
    'UPerNet': (partial(segmentor, 'upernet_bisa_swin_t_ade20k'), 'mmseg'),
    'classifier': (partial(classifier, FAMILIES['biformer']), 'mmpretrain'),
}


class Copies(TorchDispatchMode):
    """Operators that move values between the CPU and the GPU, for which the CPU waits."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, inputs=(), options=None):
        outputs = function(*inputs, **(options or {}))
        found = [x for x in tree_leaves((inputs, outputs)) if isinstance(x, torch.Tensor)]
        if {x.device.type for x in found if x.ndim or x.is_cuda} == {'cpu', 'cuda'}:
            self.names.append(str(function))
        return outputs


@pytest.mark.parametrize('name', others_in_zoo(BATCHES, ['linear head', 'classifier']))
def test_losses_of_a_batch_wait_nowhere(name):
    """Operators that do raise an error for tensors without data, such as mmseg's accuracy."""
    make, scope = BATCHES[name]
    config = make()
    with fake_gpu(PRECISIONS['amp bf16']):
        init_default_scope(scope)
        model = revert_sync_batchnorm(MODELS.build(config)).train()
        images, samples = torch.randn(2, 3, *SIZE), samples_of(scope, 2)
        if scope == 'mmseg':
            with pytest.raises(DynamicOutputShapeException):
                model.loss(images, samples)
        BatchLoss(model)
        with Copies() as copies:
            losses = model.loss(images, samples)
    assert copies.names == []
    assert {x.device.type for x in losses.values()} == {'cuda'}
