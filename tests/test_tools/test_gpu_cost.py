"""Counts of the work of a GPU, compared with counts by hand (in float32 by default)."""

import re

import pytest
import torch
from benchmarking.cost import count
from helpers import only_in_zoo
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import scaled_dot_product_attention
from variants import FAMILIES, build

from mmbixt.ops.dispatch import recorded_choices


class Call(nn.Module):
    """A function as a module, beside layers that it may call."""

    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def meta(*shape, **options):
    return torch.empty(shape, device='meta', **options)


def counted(function, *inputs, train=False, **layers):
    cost = count(Call(function, **layers).to('meta'), *inputs, train=train)
    return [(kernel.kind, kernel.bytes, kernel.macs) for kernel in cost.kernels]


def test_linear_layer():
    forward = ('addmm', 4 * (5 + 24 + 20 + 30), 6 * 4 * 5)
    x, layer = meta(2, 3, 4), nn.Linear(4, 5)
    assert counted(lambda self, x: self.fc(x), x, fc=layer) == [forward]
    grad_weight = ('mm', 4 * (30 + 24 + 20), 6 * 4 * 5)
    grad_bias = ('sum', 4 * (30 + 5), 0)
    both = counted(lambda self, x: self.fc(x), x, train=True, fc=layer)
    assert both == [forward, grad_weight, grad_bias]


@pytest.mark.parametrize(
    ('function', 'expected'),
    [
        (lambda _, x: x.view(4, 6).t()[:2].unbind()[0], []),
        (lambda _, x: x[:, :1].expand(4, 6) + x[:1], [('add', 4 * (4 + 6 + 24), 0)]),
        (lambda _, x: x.add_(1), [('add_', 4 * 48, 0)]),
        (lambda _, x: x.new_empty(4, 6).copy_(x), [('copy_', 4 * 48, 0)]),
        (lambda _, x: x.bfloat16(), [('_to_copy', 6 * 24, 0)]),
        (lambda _, x: x[meta(2, dtype=torch.long)], [('index', 2 * 8 + 4 * 2 * 12, 0)]),
    ],
)
def test_bytes(function, expected):
    assert counted(function, meta(4, 6)) == expected


def test_fused_attention():
    """(2,3,49,8), with a mask for all images, which torch pads to rows of 56 for its kernel."""
    q, mask = meta(2, 3, 49, 8, requires_grad=True), meta(3, 49, 49)
    tokens, scores = 2 * 3 * 49 * 8, 3 * 49 * 49

    def attend(_, q, mask=None):
        return scaled_dot_product_attention(q, q.detach(), q.detach(), mask)

    macs, seed = 2 * tokens * 49, 2 * 8  # and the place of the random numbers of dropout
    kind = '_scaled_dot_product_efficient_attention'
    assert counted(attend, q) == [(kind, 4 * 4 * tokens + seed, macs)]
    pad, forward, backward, kept = counted(attend, q, mask, train=True)
    assert pad == ('constant_pad_nd', 4 * (scores + 3 * 49 * 56), 0)
    sums = 2 * 3 * 64  # of 49 queries; the kernel rounds up
    assert forward == (kind, 4 * (4 * tokens + scores + sums) + seed, macs)
    # reads q, k, v, the result and its gradient, writes three
    moved = 4 * (8 * tokens + scores + sums) + seed
    assert backward == (f'{kind}_backward', moved, 5 * macs // 2)
    assert kept == ('copy_', 4 * 2 * tokens, 0)  # q.grad has the strides of q


@pytest.mark.parametrize('family', FAMILIES)
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_tensors_without_data_use_the_paths_of_gpus(family, dtype, request):
    def choices(device):
        with torch.device(device), recorded_choices() as found:
            build(FAMILIES[family])(torch.empty(1, 3, 64, 64))
        return [choice[:2] for choice in found]

    request.addfinalizer(lambda: torch.set_default_dtype(torch.float32))
    torch.set_default_dtype(dtype)  # fake modules cannot be converted
    with FakeTensorMode():
        on_gpu = choices('cuda')
    assert on_gpu
    assert choices('meta') == on_gpu


def test_the_tool_states_that_nothing_was_measured(within, tmp_path):
    row = 'xcit_nano_12_p16'
    done = within('analysis/gpu_cost.py', row, '--size', 64, '--train', '--top', 3)
    assert 'not measured' in done.stdout
    assert f'{row}: ' in done.stdout
    assert 'blocks.*.attn ' in done.stdout
    assert '  H100 SXM ' in done.stdout
    peeks = tmp_path / 'peeks.py'
    peeks.write_text(
        'import torch\nclass Net(torch.nn.Module):\n'
        '    def forward(self, x):\n        return x * float(x.mean())\nbuild = Net\n'
    )
    for name, why in {
        f'{row}@compiled': 'compiled networks cannot be counted',
        f'{peeks}:build': 'reads values of tensors',
    }.items():
        assert why in within('analysis/gpu_cost.py', name, fails=True).stderr


GOALS = {  # GB and kernels, at most, that a training step in bfloat16 with 16 images of 512 takes
    'xcit_small_12_p16': (28.2, 1115),
    'biformer_small': (59.1, 1420),
    'bixt_ti_l64_d13_p16': (9.8, 1053),
    'bixt_ti_l64_d13_p16@triton': (8.9, 924),
    'swin_tiny': (35.7, 648),
    'bisa_swin_tiny': (67.8, 879),
}


@only_in_zoo
@pytest.mark.parametrize('name', GOALS)
def test_published_models_move_no_more_than_the_docs_say(name, within):
    done = within('analysis/gpu_cost.py', name, '--batch', 16, '--train')
    moved, kernels = re.search(r': ([0-9.]+) GB moved, (\d+) kernels', done.stdout).groups()
    assert float(moved) <= GOALS[name][0]
    assert int(kernels) <= GOALS[name][1]
