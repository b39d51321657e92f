import json
from pathlib import Path

from helpers import only_in_zoo

TOOL = 'analysis/iteration_cost.py'
LINEAR = 'configs/bixt/linear_bixt_ti_ade20k.py'
FINER = 'configs/bixt/linear_bixt_ti_s8_ade20k.py'


@only_in_zoo
def test_compares_training_steps(tmp_path, within):
    """Each in its own process."""
    options = '--rounds', 1, '--steps', 1, '--shape', 96, 128, '--json', tmp_path / 'all.json'
    done = within(TOOL, FINER, '--against', LINEAR, *options)
    found = json.loads((tmp_path / 'all.json').read_text())
    (one,), (other,) = found[FINER], found[LINEAR]
    assert one['bytes'] > 16 * 14_549_334  # weights, gradients, two moments of each
    time, memory = (one[key] / other[key] for key in ('seconds', 'bytes'))
    assert f'| `{Path(FINER).stem}` | {time:.2f} | {memory:.2f} |' in done.stdout
