"""tools/analysis/benchmark.py: rows by name, a whole run, and networks that fail."""

import json
from argparse import Namespace
from functools import partial

import pytest
import torch
from benchmark import Network

OTHER_CODE = """
import torch

class build(torch.nn.Conv2d):
    def __init__(self):
        super().__init__(3, 8, 4, 4)

    def forward(self, x):
        return [super().forward(x)]
"""
STOCK_SWIN = 'mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py'


@pytest.fixture
def benchmark(within):
    """Runs the tool, which measures networks in other processes."""
    return partial(within, 'analysis/benchmark.py', '--threads', '1', '--rounds', '1')


@pytest.mark.zoo
def test_networks_against_another(benchmark, tmp_path):
    path, file = tmp_path / 'my_code.py', tmp_path / 'all.json'
    path.write_text(OTHER_CODE)
    base = f'{path}:build'
    rows = [base, f'{base}@compiled', 'xcit_nano_12_p16@definition', f'{base}@onnxruntime']
    options = '--against', base, '--json', file, '--sizes', 32
    done = benchmark(*rows[1:], *options)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[-3:] for line in lines if line[:1] == [base]] == [['1.00x', '1.00x', '1.00']]
    assert [line[-2:] for line in lines if line[:1] == [rows[3]]] == [['–', '–']]
    measured = json.loads(file.read_text())['measured']
    assert [one['row'] for one in measured] == rows
    for one in measured:
        times = 1 if one['row'] != rows[3] else 0
        assert [len(one[key]) for key in ('forward', 'both', 'memory')] == [1, times, times]


@pytest.mark.zoo
def test_memory_and_growth(benchmark, tmp_path):
    """Inference needs less memory than training."""
    name, options, peaks = 'xcit_nano_12_p16', ('--json', tmp_path / 'all.json'), []
    for option in ([], ['--inference-memory']):
        done = benchmark(name, '--sizes', 128, 256, *options, *option)
        assert f'{name}: time of a forward pass grows as pixels^' in done.stdout
        peaks += json.loads((tmp_path / 'all.json').read_text())['measured'][1]['memory']
    assert 0 < 2 * peaks[1] < peaks[0]


@pytest.mark.parametrize(
    ('row', 'shapes'),
    [
        ('bisa_swin_tiny', [(96 * 2**i, 16 >> i, 16 >> i) for i in range(4)]),
        ('timm/swin_tiny_patch4_window7_224', [(16 >> i, 16 >> i, 96 * 2**i) for i in range(4)]),
        (STOCK_SWIN, [(96 * 2**i, 16 >> i, 16 >> i) for i in range(4)]),
        ('configs/bixt/linear_bixt_ti_ade20k.py', [(192, 4, 4)]),
    ],
)
def test_networks_by_name_return_feature_maps_without_stochastic_depth(row, shapes):
    """Two passes in training give the same."""
    args = Namespace(batch=8, device='cpu', threads=1, amp=False)
    args.inference_memory = False
    network = Network(row, 64, args)
    network.model.train()
    first, second = network.run(), network.run()
    assert [tuple(x.shape[1:]) for x in first] == shapes
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
