"""Forward passes on CUDA tensors without data: devices and dtypes are right, no values are read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from cases import CASES, FIRST, MODULES
from helpers import others_in_zoo
from parity import PRECISIONS, Call, Precision, tensors
from torch._subclasses.fake_tensor import FakeTensorMode
from variants import FAMILIES, VARIANTS, build


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


def check(make: Callable[[], tuple], precision: Precision) -> None:
    with fake_gpu(precision):
        call = Call(*make())
        results = tensors(call.function(*call.inputs))
    assert {x.device.type for x in results} == {'cuda'}
    assert {x.dtype for x in results} <= {precision.dtype, precision.autocast}


@pytest.mark.parametrize('precision', others_in_zoo(PRECISIONS, ['amp bf16', 'fp16']))
@pytest.mark.parametrize('name', others_in_zoo(CASES, {*FIRST, *MODULES}))
def test_attentions_and_layers(name, precision):
    check(CASES[name], PRECISIONS[precision])


@pytest.mark.parametrize('precision', others_in_zoo(PRECISIONS, ['amp fp16']))
@pytest.mark.parametrize('size', others_in_zoo([(64, 64), (57, 90)], [(57, 90)]))
@pytest.mark.parametrize('name', VARIANTS)
def test_backbones(name, size, precision):
    def make(**options):
        return build(VARIANTS[name], **options).train(), [torch.randn(2, 3, *size)]

    check(make, PRECISIONS[precision])
    if name in FAMILIES:
        check(partial(make, drop_path_rate=0.3, with_cp=True), PRECISIONS[precision])
