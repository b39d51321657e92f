"""A graph of the losses of a batch changes how a training runs, not what it computes."""

import copy
from types import SimpleNamespace

import pytest
import torch
from graphs import GRAPHS, LINEAR, LOSSES, MODELS, check, imitate, train_one_of_two
from helpers import others_in_zoo
from mmengine.config import Config
from mmengine.optim import OptimWrapper
from mmengine.registry import MODELS as REGISTRY
from mmengine.registry import init_default_scope
from running import in_two_processes
from torch import nn
from torch.utils.data import DataLoader
from training import SIZE, samples_of, train
from variants import VARIANTS, build

from mmbixt.engine.cuda_graphs import CUDAGraphsHook, obstacle

HERE = LINEAR, 'xcit /8, layer scale'


@pytest.fixture
def graph(monkeypatch):
    return imitate(monkeypatch)


@pytest.mark.parametrize('name', others_in_zoo(MODELS, HERE))
def test_losses(name, graph, tmp_path):
    check(tmp_path, graph, name)


@pytest.mark.zoo
def test_two_processes(tmp_path):
    """New ones: a fork has no threads for the backward pass where its parent had some."""
    in_two_processes(train_one_of_two, tmp_path, start_method='spawn')


def captured():
    """A hook after the first iteration, its runner, and a batch."""
    init_default_scope('mmseg')
    model = REGISTRY.build(MODELS[LINEAR]())
    wrapper = OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.1))
    hook, runner = CUDAGraphsHook(), SimpleNamespace(model=model, optim_wrapper=wrapper)
    hook.before_train(runner)
    batch = torch.randn(2, 3, *SIZE), samples_of('mmseg', 2)
    model.loss(*batch)
    hook.before_train_iter(runner)
    return hook, runner, *batch


@pytest.mark.parametrize('change', ['another loss', 'an unfrozen weight', 'another training'])
def test_changes_of_the_model_end_the_graph(change, graph):
    hook, runner, images, samples = captured()
    model = runner.model
    if change == 'another loss':
        model.decode_head.loss_decode = copy.deepcopy(model.decode_head.loss_decode)
    elif change == 'an unfrozen weight':
        next(model.parameters()).requires_grad_(False)
    else:
        hook.before_train(runner)
    hook.before_train_iter(runner)
    model.loss(images, samples)
    assert graph.calls == 0


def test_other_batches_run_as_always(graph):
    _, runner, images, samples = captured()
    model = runner.model
    assert {*model.loss(images, samples)} == {*LOSSES[LINEAR]}
    assert graph.calls == 1
    with torch.no_grad():
        model.loss(images, samples)
    model.eval().loss(images, samples)
    model.train().loss(images[:1], samples[:1])
    model.loss(images[..., :64], samples)
    samples[0].gt_edge_map = samples[0].gt_sem_seg
    model.loss(images, samples)
    assert graph.calls == 1


def test_accumulated_gradients_are_found_without_a_config(graph, tmp_path, capfd):
    model = MODELS[LINEAR]()
    expected, _ = train(tmp_path, model, accumulative_counts=2)
    found, _ = train(tmp_path, model, [GRAPHS], accumulative_counts=2)
    assert found == expected
    assert graph.calls == 0
    assert 'No CUDA graph: accumulative_counts adds gradients up' in ''.join(capfd.readouterr())


def test_losses_that_wait_are_not_captured(graph, tmp_path, monkeypatch, capfd):
    original = nn.functional.cross_entropy

    def wait(*inputs, **options):
        if graph.mode.value == 'error':
            raise RuntimeError('called a synchronizing CUDA operation')
        return original(*inputs, **options)

    monkeypatch.setattr(nn.functional, 'cross_entropy', wait)
    model = MODELS[LINEAR]()
    expected, _ = train(tmp_path, model)
    found, _ = train(tmp_path, model, [GRAPHS])
    assert found == expected
    assert (graph.calls, graph.mode.value) == (0, 0)
    assert 'without waiting for the GPU (called a synchronizing' in ''.join(capfd.readouterr())


# --- What is refused ------------------------------------------------------------------------------

SEGMENTOR = nn.ModuleDict(dict(decode_head=nn.Conv2d(4, 2, 1)))


@pytest.mark.parametrize(
    ('model', 'settings', 'text'),
    [
        (SEGMENTOR, {}, ''),
        (nn.Conv2d(3, 4, 1), {}, 'images have many sizes'),
        (nn.ModuleDict(dict(head=build(VARIANTS['xcit'], with_cp=True))), {}, 'with_cp'),
        (SEGMENTOR, dict(compile=True), 'compile=True'),
        (SEGMENTOR, dict(pin_memory=True), 'pin_memory'),
        (nn.DataParallel(SEGMENTOR), {}, 'DataParallel communicates'),
    ],
)
def test_obstacles_are_named(model, settings, text, monkeypatch):
    monkeypatch.setattr('torch.cuda.is_available', lambda: True)
    wrapper = OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.1))
    loader = DataLoader([], pin_memory='pin_memory' in settings, num_workers=1)
    parts = dict(model=model, optim_wrapper=wrapper, train_dataloader=loader)
    found = obstacle(SimpleNamespace(cfg=Config(settings), **parts))
    assert text in found
    assert bool(text) == bool(found)
