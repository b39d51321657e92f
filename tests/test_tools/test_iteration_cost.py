import json
import sys
from pathlib import Path

import pytest
from helpers import only_in_zoo

TOOL = 'analysis/iteration_cost.py'
LINEAR = 'configs/bixt/linear_bixt_ti_ade20k.py'
FINER = 'configs/bixt/linear_bixt_ti_s8_ade20k.py'
MASKS = 'configs/bixt/maskrcnn_bixt_ti_3x_coco.py'
# replaces Python in the measuring processes
PYTHON = """#!/bin/sh
case "$*" in
    *broken*) echo 'KeyError: Nothing is not in the registry' >&2; exit 1;;
    *_s8_*) echo '{"seconds": 3.0, "bytes": 500}';;
    *) echo '{"seconds": 2.0, "bytes": 400}';;
esac
"""


@pytest.fixture
def measured(tmp_path, monkeypatch):
    path = tmp_path / 'python'
    path.write_text(PYTHON)
    path.chmod(0o755)
    monkeypatch.setattr(sys, 'executable', str(path))


def compare(within, folder, *options):
    done = within(TOOL, FINER, '--against', LINEAR, '--json', folder / 'all.json', *options)
    assert done.returncode == 0, done.stderr
    assert f'| `{Path(LINEAR).stem}` | 1.00 | 1.00 |' in done.stdout
    found = json.loads((folder / 'all.json').read_text())
    one, other = found[FINER][0], found[LINEAR][0]
    time, memory = (one[key] / other[key] for key in ('seconds', 'bytes'))
    assert f'| `{Path(FINER).stem}` | {time:.2f} | {memory:.2f} |' in done.stdout
    return found


@pytest.mark.usefixtures('measured')
def test_compares_configs(tmp_path, within):
    found = compare(within, tmp_path, '--rounds', 2)
    assert found[FINER] == [dict(seconds=3.0, bytes=500)] * 2


@only_in_zoo
def test_compares_training_steps(tmp_path, within):
    """Each in its own process."""
    found = compare(within, tmp_path, '--rounds', 1, '--steps', 1, '--shape', 96, 128)
    assert found[FINER][0]['bytes'] > 16 * 14_549_334  # weights, gradients, two moments of each


@pytest.mark.usefixtures('measured')
def test_refuses_a_mixture_and_names_what_fails(within, tmp_path):
    assert 'cannot be compared' in within(TOOL, LINEAR, MASKS).stderr
    (tmp_path / 'broken.py').write_text("default_scope = 'mmseg'\n")
    done = within(TOOL, tmp_path / 'broken.py', '--against', LINEAR)
    assert 'broken.py failed:\nKeyError: Nothing is not in' in done.stderr
