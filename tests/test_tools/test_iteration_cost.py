import json
import re
from pathlib import Path

import pytest

TOOL = 'analysis/iteration_cost.py'


@pytest.mark.parametrize(
    ('config', 'against'),
    [
        ('bixt/linear_bixt_ti_s8_ade20k', 'bixt/linear_bixt_ti_ade20k'),
        ('xcit/maskrcnn_xcit_t12_p16_3x_coco', 'bixt/maskrcnn_bixt_ti_3x_coco'),
    ],
)
def test_compares_training_steps(config, against, tmp_path, call):
    config, against = f'configs/{config}.py', f'configs/{against}.py'
    options = ['--shape', 96, 128, '--rounds', 1, '--steps', 1, '--json', tmp_path / 'all.json']
    done = call(TOOL, config, '--against', against, *options)
    assert done.returncode == 0, done.stderr
    assert f'| `{Path(against).stem}` | 1.00 | 1.00 |' in done.stdout
    found = json.loads((tmp_path / 'all.json').read_text())
    (one,), (other,) = found[config], found[against]
    ratios = [f'{one[key] / other[key]:.2f}' for key in ('seconds', 'bytes')]
    assert f'| `{Path(config).stem}` | {" | ".join(ratios)} |' in done.stdout
    # weights, gradients and two moments of each, in four bytes
    parameters = 14_549_334 if 'linear' in config else 26_177_400
    assert one['bytes'] > 16 * parameters


def test_refuses_a_mixture_and_names_what_fails(tmp_path, call):
    configs = 'bixt/linear_bixt_ti_ade20k', 'xcit/maskrcnn_xcit_t12_p16_3x_coco'
    done = call(TOOL, *(f'configs/{config}.py' for config in configs))
    assert done.returncode == 1
    assert 'no common measure' in done.stderr
    path = tmp_path / 'broken.py'
    path.write_text("default_scope = 'mmseg'\nmodel = dict(type='Nothing')\n")
    done = call(TOOL, path, '--against', path)
    assert re.search(r'broken.py failed:.*Nothing is not in', done.stderr, re.DOTALL)
