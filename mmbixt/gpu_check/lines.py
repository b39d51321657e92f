"""The list of all checks."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import NamedTuple
from unittest import mock

import torch

from mmbixt.gpu_check import models
from mmbixt.gpu_check.cases import CASES, LAYERS, OPS
from mmbixt.gpu_check.parity import PRECISIONS, Precision, check, check_on_fake_tensors

FEW = PRECISIONS[:3]  # those that most users train in
FIRST = {f'{make.__name__}: {next(iter(labels))}' for make, labels in CASES.items()}
KERNELS = ('residual: ', 'gelu: ', 'bixt_')  # prefixes of cases with kernels of Triton
FAKE = 'fake CUDA'
BACKBONES = {name: partial(models.backbone, name) for name in models.NETWORKS}
PARTS = dict(op=OPS, layer=LAYERS, backbone=BACKBONES)


class Line(NamedTuple):
    """One check: of which part, how, and in which precision; ``needs`` are modules to import."""

    part: str
    name: str
    way: str
    precision: str
    needs: tuple[str, ...]
    run: Callable[[], dict]


def all_lines(device: str | None, batch: int) -> list[Line]:
    """All checks, the most important first, compiled ones (seconds each) last.

    Without a GPU ``device`` is None. ``batch`` is the number of images where times are taken.
    """
    parity, times = partial(_parity, device), partial(_times, device, batch)
    if device is None:
        return [*parity(FAKE), *_models(device)]
    compiled, names = [*parity('compiled')], {precision.name for precision in FEW}
    first = [line for line in compiled if line.part == 'layer' or line.name in FIRST]
    early = [line for line in first if line.precision in names]
    late = [line for line in compiled if line not in early]
    lines = [*parity('eager'), *parity('Triton'), *times('eager')]
    lines += [*parity('no sync'), *parity('CUDA graph'), *_models(device)]
    return [*lines, *early, *times('compiled'), *late]


def _parity(device: str | None, way: str) -> Iterator[Line]:
    for part, cases in PARTS.items():
        needs = ('mmengine', 'timm') if part == 'backbone' else ()
        precisions = FEW if part == 'backbone' and way not in ('eager', FAKE) else PRECISIONS
        if way == 'Triton':
            needs += ('triton',)
            cases = {name: make for name, make in cases.items() if name.startswith(KERNELS)}
        for name, make in cases.items():
            for precision in precisions:
                run = partial(_check, part, make, device, way, precision)
                yield Line(part, name, way, precision.name, needs, run)


def _check(part: str, make: Callable, device: str | None, way: str, precision: Precision) -> dict:
    if way == FAKE:
        return check_on_fake_tensors(make, precision)
    routes = mock.patch('mmbixt.layers.routing_attention.route', models.next_regions)
    with routes if part == 'backbone' else nullcontext():
        return check(make, device, way, precision)


def _models(device: str | None) -> Iterator[Line]:
    for name, needs in models.MODELS.items():
        for precision in FEW:
            run = partial(models.check_model, name, device, precision)
            if device is None:
                run = partial(models.check_model_on_fake_tensors, name, precision)
            elif 'mmdet' in needs and precision.autocast == torch.bfloat16:
                run = partial(not_run, "mmcv's operators for GPUs know no bfloat16")
            way = FAKE if device is None else 'training step'
            yield Line('model', name, way, precision.name, (*needs, 'timm'), run)


def _times(device: str, batch: int, way: str) -> Iterator[Line]:
    networks = dict(models.NETWORKS)
    if way == 'eager':
        networks['bixt_ti_l64_d13_p16@triton'] = ('bixt_ti_l64_d13_p16', ('triton',))
    for ours, (theirs, needs) in networks.items():
        names = (ours, theirs)
        if way == 'compiled':  # the plain order stays as it is
            names = tuple(name if '@' in name else f'{name}@compiled' for name in names)
        run = partial(models.measure, names, device, batch)
        yield Line('time', ours, way, 'bf16', ('mmengine', 'timm', *needs), run)


def not_run(why: str) -> dict:
    return dict(status='not run', text=why)


def failed(text: str) -> dict:
    return dict(status='failed', text=' '.join(text.split())[:400])


def result_of(line: Line) -> dict:
    """Run a line; an error in it is its result and ends no other line."""
    for module in line.needs:
        try:
            import_module(module)
        except Exception as error:  # not only ImportError: frameworks assert each other's versions
            return not_run(f'{module} cannot be imported: {error}')
    try:
        return line.run()
    except Exception as error:
        return failed(f'{type(error).__name__}: {error}')
