import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OPTIONS = ['--threads', 1, '--rounds', 1]


def call(*arguments):
    return subprocess.run(
        [sys.executable, ROOT / 'tools/analysis/benchmark.py', *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def external(tmp_path):
    path = tmp_path / 'my_code.py'
    path.write_text(
        'import torch\n'
        'class Net(torch.nn.Module):\n'
        '    def __init__(self):\n'
        '        super().__init__()\n'
        '        self.conv = torch.nn.Conv2d(3, 8, 4, 4)\n'
        '    def forward(self, x):\n'
        '        return [self.conv(x)]\n'
        'def build():\n'
        '    return Net()\n'
    )
    return f'{path}:build'


def test_rows_in_pairs(external, tmp_path):
    rows = ['xcit_nano_12_p16', 'xcit_nano_12_p16@reference']
    files = ['--json', tmp_path / 'all.json', '--plot', tmp_path / 'plots/growth.png']
    options = [*OPTIONS, '--sizes', 32, 64, '--against', rows[0], '--external', external, *files]
    done = call(*rows, *options)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith(rows[0] + ' ')]
    assert [line.split()[-3:] for line in lines] == [['1.00x', '1.00x', '1.00']] * 2
    for row in (*rows[1:], external):
        assert done.stdout.count(f'\n{row} ') == 2
        assert f'{row}: time grows as pixels^' in done.stdout
    measured = json.loads((tmp_path / 'all.json').read_text())['measured']
    assert len(measured) == 6
    by_name = {(one['name'], one['size']): one for one in measured}
    conv = by_name[external, 64]
    assert conv['parameters'] == 8 * 48 + 8
    assert conv['macs'] == 16 * 16 * 8 * 48
    assert all(len(one['forward']) == len(one['both']) == 1 for one in measured)
    assert all(one['memory'] > 0 < one['peak'] for one in measured)
    nano = by_name[rows[0], 64], by_name[rows[1], 64]
    assert nano[0]['parameters'] == nano[1]['parameters']
    assert (tmp_path / 'plots/growth.png').stat().st_size > 10_000


def test_a_row_may_be_compiled(external):
    done = call(external, f'{external}@compiled', '--against', external, *OPTIONS, '--sizes', 32)
    assert done.returncode == 0, done.stderr
    (row,) = (line for line in done.stdout.splitlines() if '@compiled ' in line)
    assert row.split()[-2].endswith('x')


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['xcit_tiny_13_p16'], 'Similar names: xcit_tiny_12_p16'),
        (['biformer_tiny@triton'], 'has no such path'),
        (['biformer_tiny', '--plot', 'x.png'], 'give two --sizes or more'),
        (['biformer_tiny', '--rounds', '0'], 'are at least 1'),
    ],
)
def test_mistakes_are_explained_in_a_few_lines(arguments, message):
    done = call(*arguments, '--sizes', 64)
    assert done.returncode != 0
    assert message in done.stderr
    assert 'Traceback' not in done.stderr
