import json
from functools import partial
from multiprocessing import get_context

import pytest
import torch
from helpers import only_in_zoo

from mmbixt.benchmarking.networks import UnknownRowError, build


@pytest.fixture
def benchmark(within):
    """Runs the tool, which measures networks in other processes."""
    return partial(within, 'analysis/benchmark.py', '--threads', '1', '--rounds', '1')


OTHER_CODE = """
import torch

class build(torch.nn.Conv2d):
    def __init__(self):
        super().__init__(3, 8, 4, 4)

    def forward(self, x):
        return [super().forward(x) + torch.ones(8, 1, 1)]  # names no device
"""


@pytest.fixture
def external(tmp_path):
    path = tmp_path / 'my_code.py'
    path.write_text(OTHER_CODE)
    return f'{path}:build'


@only_in_zoo
def test_two_networks_against_a_third(benchmark, external, tmp_path):
    file, plot = tmp_path / 'all.json', tmp_path / 'growth.png'
    names = [external, f'{external}@compiled', 'xcit_nano_12_p16@reference']
    options = '--against', external, '--json', file, '--sizes', 32, 64, '--plot', plot
    done = benchmark(*names[1:], *options)
    lines = [line for line in done.stdout.splitlines() if line.startswith(f'{external} ')]
    assert [line.split()[-3:] for line in lines] == [['1.00x', '1.00x', '1.00']] * 2
    assert f'{external}@compiled: time grows as pixels^' in done.stdout
    assert plot.exists()
    measured = json.loads(file.read_text())['measured']
    expected = [(name, size) for size in (32, 64) for name in names]
    assert [(one['name'], one['size']) for one in measured] == expected
    assert measured[3]['parameters'] == 8 * 48 + 8
    assert measured[3]['macs'] == 16 * 16 * 8 * 48
    for one in measured:
        assert len(one['forward']) == len(one['both']) == 1
        assert one['memory'] > 0 < one['peak']


def test_networks_that_fail_are_named_in_a_few_lines(benchmark, tmp_path, monkeypatch):
    """Both after an error and after a crash of the process, which is forked to save imports."""
    monkeypatch.setattr('benchmarking.turns.get_context', lambda _: get_context('fork'))
    for code, message in (
        ('def build(): 1 / 0', 'ZeroDivisionError: division by zero'),
        ('import os\ndef build(): os.kill(os.getpid(), 9)', 'its process ended without a'),
    ):
        (tmp_path / 'broken.py').write_text(code)
        done = benchmark(f'{tmp_path}/broken.py:build', '--sizes', 64, fails=True)
        assert f'error: {tmp_path}/broken.py:build: {message}' in done.stderr
        assert 'Traceback' not in done.stderr


STOCK_SWIN = 'mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py'


@pytest.mark.parametrize(
    ('name', 'shapes'),
    [
        ('xcit_nano_12_p16', [(1, 128, 4, 4)] * 4),
        ('timm/vit_tiny_patch16_224', [(1, 16, 192)] * 4),
        ('timm/resnet18', [(1, 64, 32, 32), (1, 64, 16, 16), (1, 128, 8, 8), (1, 256, 4, 4)]),
        (STOCK_SWIN, [(1, 96 * 2**i, 16 >> i, 16 >> i) for i in range(4)]),
        ('configs/bixt/linear_bixt_ti_ade20k.py', [(1, 192, 4, 4)]),
    ],
)
def test_networks_by_name_return_feature_maps(name, shapes):
    model, mode = build(name, 64)
    assert mode == 'auto'
    with torch.no_grad():
        feature_maps = model(torch.randn(1, 3, 64, 64))
    assert [tuple(x.shape) for x in feature_maps][: len(shapes)] == shapes


def test_networks_are_built_for_their_size_and_without_stochastic_depth():
    model, mode = build('biformer_tiny@reference', 512)
    assert mode == 'reference'
    assert model.stages[0][0].attn.num_regions == 8
    assert {block.drop_path.drop_prob for stage in model.stages for block in stage} == {0.0}


def test_mistakes_are_explained():
    for name, message in (
        ('xcit_tiny_13_p16', 'Similar names: xcit_tiny_12_p16'),
        ('biformer_tiny@quick', 'the modes are auto, .*compiled'),
        (f'{__file__}:nothing', 'has no nothing'),
    ):
        with pytest.raises(UnknownRowError, match=message):
            build(name, 64)
