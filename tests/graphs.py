"""A stand-in for CUDA graphs, which runs the same function on the memory of the example.

It is a module of its own, which new processes import.
"""

import pytest
import torch
from training import CLASSES, classifier, segmentor, train
from variants import FAMILIES, VARIANTS

from mmbixt.engine import cuda_graphs

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
ONE, TWO = ('decode.loss_ce', 'decode.acc_seg'), ('aux.loss_ce', 'aux.acc_seg')
LOSSES = {  # names in the graph
    **dict.fromkeys(MODELS, (*ONE, *TWO)),
    **dict.fromkeys(('SemanticFPN of XCiT', LINEAR), ONE),
    **dict.fromkeys(FAMILIES, ('loss',)),
    'distilled': ('loss_label', 'loss_teacher'),
}


class Mode:
    """In place of ``torch.cuda``'s mode for what waits."""

    value = 0

    def get(self):
        return self.value

    def set(self, value):
        self.value = value


class Graph:
    """In place of ``torch.cuda.make_graphed_callables``; ``calls`` of what it makes."""

    calls = 0

    def __init__(self):
        self.mode = Mode()

    def __call__(self, module, example, allow_unused_input):
        self.module, self.forward, self.example = module, module.forward, example
        module.forward = self.replay

    def replay(self, *inputs):
        with torch.no_grad():
            for memory, values in zip(self.example, inputs, strict=True):
                memory.copy_(values)
        self.calls += 1
        return self.forward(*self.example)


def imitate(patch):
    graph = Graph()
    patch.setattr(torch.cuda, 'get_sync_debug_mode', graph.mode.get)
    patch.setattr(torch.cuda, 'set_sync_debug_mode', graph.mode.set)
    patch.setattr(torch.cuda, 'make_graphed_callables', graph)
    patch.setattr(cuda_graphs, 'obstacle', lambda runner: '')
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


def train_one_of_two(rank, folder):
    with pytest.MonkeyPatch.context() as patch:
        check(folder / str(rank), imitate(patch), 'SemanticFPN of XCiT', ddp=True)
