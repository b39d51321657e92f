"""Forward passes on CUDA tensors without data: devices, dtypes, no values read."""

from functools import partial

import pytest
import torch
from helpers import others_in_zoo
from variants import FAMILIES, VARIANTS, build

from mmbixt.gpu_check.cases import LAYERS, OPS
from mmbixt.gpu_check.lines import FIRST
from mmbixt.gpu_check.models import MODELS, check_model_on_fake_tensors
from mmbixt.gpu_check.parity import PRECISIONS, check_on_fake_tensors

BY_NAME = {precision.name: precision for precision in PRECISIONS}
AMP = BY_NAME['amp fp16']
CASES = OPS | LAYERS


@pytest.mark.parametrize('precision', others_in_zoo(BY_NAME, ['amp bf16']))
@pytest.mark.parametrize('name', others_in_zoo(CASES, {*FIRST, *LAYERS}))
def test_ops_and_layers(name, precision):
    assert check_on_fake_tensors(CASES[name], BY_NAME[precision]) == dict(status='ok', text='ok')


@pytest.mark.parametrize('precision', others_in_zoo(BY_NAME, ['amp fp16']))
@pytest.mark.parametrize('size', others_in_zoo([(64, 64), (57, 90)], [(57, 90)]))
@pytest.mark.parametrize('name', VARIANTS)
def test_all_families_and_options(name, size, precision):
    def make(**options):
        return build(VARIANTS[name], **options).train(), [torch.randn(2, 3, *size)]

    for options in ({}, dict(drop_path_rate=0.3, with_cp=True)) if name in FAMILIES else ({},):
        found = check_on_fake_tensors(partial(make, **options), BY_NAME[precision])
        assert found == dict(status='ok', text='ok')


QUICK = ['linear_bixt_ti_ade20k', 'maskrcnn_xcit_t12_p16_3x_coco']


@pytest.mark.parametrize('name', others_in_zoo(MODELS, QUICK))
def test_heads_and_losses(name):
    """All of them, but for what mmdet's anchors ask of values."""
    found = check_model_on_fake_tensors(name, AMP)
    assert found['status'] == 'ok', found['text']
    stops = '; the losses read values in mmdet/models/dense_heads/anchor_head.py'
    expected = stops if 'mmdet' in MODELS[name] else ' and losses'
    assert found['text'].startswith(f'feature maps and heads{expected}')


def branches_on_values(x):
    return x if x.sum() > 0 else -x


WRONG = {
    'result is on the processor': lambda x: torch.zeros(2, device='cpu'),
    'result is of another dtype': lambda x: x.double(),
    'shape depends on values': lambda x: x[x > 0],
    'program depends on values': branches_on_values,
}


@pytest.mark.parametrize('name', WRONG)
def test_mistakes_are_seen(name):
    def run():
        return check_on_fake_tensors(lambda: (WRONG[name], [torch.randn(4)]), AMP)

    if 'depends' in name:
        with pytest.raises(Exception, match=r'nonzero|_local_scalar_dense'):
            run()
    else:
        assert run()['status'] == 'failed'
