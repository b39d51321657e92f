import json
import subprocess
import sys

import benchmark
import pytest


def call(*arguments):
    arguments = map(str, arguments)
    return subprocess.run(
        [sys.executable, benchmark.__file__, '--threads', '1', '--rounds', '1', *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def external(tmp_path):
    path = tmp_path / 'my_code.py'
    path.write_text('from torch import nn\nbuild = lambda: nn.Sequential(nn.Conv2d(3, 8, 4, 4))\n')
    return f'{path}:build'


def test_rows_in_turns(external, tmp_path):
    row = 'xcit_nano_12_p16@reference'
    files = ['--json', tmp_path / 'all.json', '--plot', tmp_path / 'plots/growth.png']
    done = call(row, '--external', external, '--against', external, *files, '--sizes', 32, 64)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith(f'{external} ')]
    assert [line.split()[-3:] for line in lines] == [['1.00x', '1.00x', '1.00']] * 2
    for name in (row, external):
        assert done.stdout.count(f'\n{name} ') == 2
        assert f'{name}: time grows as pixels^' in done.stdout
    measured = json.loads((tmp_path / 'all.json').read_text())['measured']
    assert len(measured) == 4
    by_name = {(one['name'], one['size']): one for one in measured}
    assert by_name[external, 64]['parameters'] == 8 * 48 + 8
    assert by_name[external, 64]['macs'] == 16 * 16 * 8 * 48
    assert all(len(one['forward']) == len(one['both']) == 1 for one in measured)
    assert all(one['memory'] > 0 < one['peak'] for one in measured)
    assert (tmp_path / 'plots/growth.png').stat().st_size > 10_000


def test_a_row_may_be_compiled(external):
    done = call(f'{external}@compiled', '--sizes', 32)
    assert done.returncode == 0, done.stderr
    assert '@compiled ' in done.stdout


@pytest.mark.parametrize(
    ('code', 'message'),
    [
        ('def build(): 1 / 0', 'ZeroDivisionError: division by zero'),
        ('import os\ndef build(): os.abort()', 'its process ended (-6) without an answer'),
    ],
)
def test_networks_that_fail_are_named_in_a_few_lines(code, message, tmp_path):
    (tmp_path / 'broken.py').write_text(code)
    done = call(f'{tmp_path}/broken.py:build', '--sizes', 64)
    assert done.returncode == 1
    assert f'error: {tmp_path}/broken.py:build: {message}' in done.stderr
    assert 'Traceback' not in done.stderr


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--plot', 'x.png'], 'give two --sizes or more'),
        (['--rounds', '0'], 'are at least 1'),
    ],
)
def test_wrong_arguments(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['benchmark.py', 'biformer_tiny', *arguments])
    with pytest.raises(SystemExit):
        benchmark.parse_args()
    assert message in capsys.readouterr().err
