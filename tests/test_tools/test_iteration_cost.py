import json
import re
from pathlib import Path

TOOL = 'analysis/iteration_cost.py'
LINEAR = 'configs/bixt/linear_bixt_ti_ade20k.py'
FINER = 'configs/bixt/linear_bixt_ti_s8_ade20k.py'
MASKS = 'configs/bixt/maskrcnn_bixt_ti_3x_coco.py'


def test_compares_training_steps(tmp_path, within):
    """Of segmentors, each in a process of its own."""
    options = ['--shape', 96, 128, '--rounds', 1, '--steps', 1, '--json', tmp_path / 'all.json']
    done = within(TOOL, FINER, '--against', LINEAR, *options)
    assert done.returncode == 0, done.stderr
    assert f'| `{Path(LINEAR).stem}` | 1.00 | 1.00 |' in done.stdout
    found = json.loads((tmp_path / 'all.json').read_text())
    (one,), (other,) = found[FINER], found[LINEAR]
    time, memory = (one[key] / other[key] for key in ('seconds', 'bytes'))
    assert f'| `{Path(FINER).stem}` | {time:.2f} | {memory:.2f} |' in done.stdout
    assert one['bytes'] > 16 * 14_549_334  # weights, gradients and two moments of each


def test_detectors_are_trained_too(within):
    done = within(TOOL, MASKS, '--one', '--shape', 64, 64, '--batch', 1, '--steps', 1)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])['seconds'] > 0


def test_refuses_a_mixture_and_names_what_fails(tmp_path, within):
    assert 'cannot be compared' in within(TOOL, LINEAR, MASKS).stderr
    path = tmp_path / 'broken.py'
    path.write_text("default_scope = 'mmseg'\nmodel = dict(type='Nothing')\n")
    done = within(TOOL, path, '--against', path)
    assert re.search(r'broken.py failed:.*Nothing is not in', done.stderr, re.DOTALL)
