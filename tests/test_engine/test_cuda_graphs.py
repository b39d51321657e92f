"""A graph of the losses of a batch changes how a training runs, not what it computes.

``make_graphed_callables`` has a stand-in, which runs the function on the memory of the example.
"""

import copy
from types import SimpleNamespace

import pytest
import torch
from helpers import others_in_zoo
from mmengine.config import Config
from mmengine.optim import OptimWrapper
from mmengine.registry import MODELS as REGISTRY
from mmengine.registry import init_default_scope
from running import in_two_processes
from torch import nn
from torch.utils.data import DataLoader
from training import CLASSES, SIZE, classifier, samples_of, segmentor, train
from variants import FAMILIES, VARIANTS, build

from mmbixt.engine import cuda_graphs
from mmbixt.engine.cuda_graphs import CUDAGraphsHook, obstacle

GRAPHS = dict(type='mmbixt.CUDAGraphsHook')
LINEAR, FCN = 'linear head of BiXT', 'stock FCN, with an auxiliary head'
MODELS = {
    'SemanticFPN of XCiT': lambda: segmentor(
        'semfpn_xcit_t12_p16_ade20k', dict(out_indices=(0, 1, 2, 3), drop_path_rate=0.2)
    ),
    LINEAR: lambda: segmentor('linear_bixt_ti_ade20k', dict(out_indices=(3,))),
    'UPerNet of BiFormer': lambda: segmentor('upernet_biformer_t_ade20k'),
    'UPerNet of BiSA-Swin': lambda: segmentor('upernet_bisa_swin_t_ade20k'),
    FCN: lambda: segmentor('mmseg::fcn/fcn_r18-d8_4xb2-80k_cityscapes-512x1024.py'),
    **{name: lambda config=config: classifier(config) for name, config in FAMILIES.items()},
    'distilled': lambda: classifier(
        VARIANTS['xcit'],
        'mmbixt.DistilledClassifier',
        teacher=dict(model_name='test_resnet', num_classes=CLASSES),
    ),
}
HERE = LINEAR, 'xcit /8, layer scale'
ONE, TWO = ('decode.loss_ce', 'decode.acc_seg'), ('aux.loss_ce', 'aux.acc_seg')
LOSSES = {  # names in the graph
    **dict.fromkeys(MODELS, (*ONE, *TWO)),
    **dict.fromkeys(('SemanticFPN of XCiT', LINEAR), ONE),
    **dict.fromkeys(FAMILIES, ('loss',)),
    'distilled': ('loss_label', 'loss_teacher'),
}


class Graph:
    """In place of ``torch.cuda.make_graphed_callables``; ``calls`` of what it makes."""

    calls = 0

    def __call__(self, module, example, allow_unused_input):
        self.module, self.forward, self.example = module, module.forward, example
        module.forward = self.replay

    def replay(self, *inputs):
        with torch.no_grad():
            for memory, values in zip(self.example, inputs, strict=True):
                memory.copy_(values)
        self.calls += 1
        return self.forward(*self.example)


class Mode:
    """In place of ``torch.cuda``'s mode for what waits."""

    value = 0

    def get(self):
        return self.value

    def set(self, value):
        self.value = value


@pytest.fixture
def mode(monkeypatch):
    mode = Mode()
    monkeypatch.setattr(torch.cuda, 'get_sync_debug_mode', mode.get)
    monkeypatch.setattr(torch.cuda, 'set_sync_debug_mode', mode.set)
    return mode


@pytest.fixture
def graph(mode, monkeypatch):
    graph = Graph()
    monkeypatch.setattr(torch.cuda, 'make_graphed_callables', graph)
    monkeypatch.setattr(cuda_graphs, 'obstacle', lambda runner: '')
    return graph


def check(folder, graph, name, **options):
    """The same losses and weights; the graph runs in all iterations but the first."""
    model = MODELS[name]()
    options['scope'] = 'mmseg' if 'decode_head' in model else 'mmpretrain'
    expected, ordinary = train(folder, model, **options)
    found, runner = train(folder, model, [GRAPHS], **options)
    assert graph.calls == 4
    assert found == pytest.approx(expected, rel=1e-6)
    assert graph.module.names == LOSSES[name]
    state = ordinary.model.state_dict()
    for key, value in runner.model.state_dict().items():
        torch.testing.assert_close(value, state[key], rtol=1e-4, atol=1e-5)
    assert 'loss' not in vars(graph.module.model)  # its own method again


@pytest.mark.parametrize('name', others_in_zoo(MODELS, HERE))
def test_losses(name, graph, tmp_path):
    check(tmp_path, graph, name)


def train_one_of_two(rank, graph, folder):
    check(folder / str(rank), graph, 'SemanticFPN of XCiT', ddp=True)


@pytest.mark.zoo
def test_two_processes(graph, tmp_path):
    in_two_processes(train_one_of_two, graph, tmp_path)


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


def test_losses_that_wait_are_not_captured(graph, mode, tmp_path, monkeypatch, capfd):
    original = nn.functional.cross_entropy

    def wait(*inputs, **options):
        if mode.value == 'error':
            raise RuntimeError('called a synchronizing CUDA operation')
        return original(*inputs, **options)

    monkeypatch.setattr(nn.functional, 'cross_entropy', wait)
    model = MODELS[LINEAR]()
    expected, _ = train(tmp_path, model)
    found, _ = train(tmp_path, model, [GRAPHS])
    assert found == expected
    assert (graph.calls, mode.value) == (0, 0)
    assert 'without waiting for the GPU (called a synchronizing' in ''.join(capfd.readouterr())


# --- What is refused ------------------------------------------------------------------------------

SEGMENTOR = nn.ModuleDict(dict(backbone=nn.Conv2d(3, 4, 1), decode_head=nn.Conv2d(4, 2, 1)))
# by what the log says: the model, and settings of the config
REFUSED = {
    'images have many sizes': (nn.ModuleDict(dict(backbone=nn.Conv2d(3, 4, 1))), {}),
    'with_cp': (nn.ModuleDict(dict(head=build(VARIANTS['xcit'], with_cp=True))), {}),
    'compile=True': (SEGMENTOR, dict(compile=True)),
    '(pin_memory)': (SEGMENTOR, dict(pin_memory=True)),
    'DataParallel communicates': (nn.DataParallel(SEGMENTOR), {}),
}


@pytest.mark.parametrize('text', REFUSED)
def test_obstacles_are_named(text, monkeypatch):
    def problem(model, settings):
        wrapper = OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.1))
        loader = DataLoader([], pin_memory='pin_memory' in settings, num_workers=1)
        parts = dict(model=model, optim_wrapper=wrapper, train_dataloader=loader)
        return obstacle(SimpleNamespace(cfg=Config(settings), **parts))

    assert torch.cuda.is_available() or problem(SEGMENTOR, {}) == 'torch finds no GPU'
    monkeypatch.setattr('torch.cuda.is_available', lambda: True)
    assert problem(SEGMENTOR, {}) == ''
    assert text in problem(*REFUSED[text])
