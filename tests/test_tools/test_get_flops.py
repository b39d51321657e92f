import re
from functools import partial
from pathlib import Path

import pytest

from mmbixt.checkpoints.sources import PUBLISHED

ROOT = Path(__file__).parents[2]
START, END = '<!-- table: get_flops.py --table -->', '<!-- end of table -->'


@pytest.fixture
def flops(within):
    return partial(within, 'analysis/get_flops.py')


def parts(done):
    """Millions of parameters and billions of multiply-adds of each part of a model."""
    row = r'^(\w+) +([\d.]+) M parameters +([\d.]+) G multiply-adds$'
    return {
        name: (float(params), float(macs))
        for name, params, macs in re.findall(row, done.stdout, re.MULTILINE)
    }


@pytest.mark.zoo
def test_table_of_models_is_that_of_the_tool(tmp_path, flops):
    before, table, after = re.split(f'{START}\n|{END}', (ROOT / 'docs/configs.md').read_text())
    _, _, *rows = table.splitlines()
    names = [row.split('`')[1] for row in rows]
    assert names == [model.name for model in PUBLISHED if model.gmacs]
    outdated = tmp_path / 'configs.md'
    outdated.write_text(f'{before}{START}\nold\n{END}{after}')
    flops('--update', outdated)
    message = 'python tools/analysis/get_flops.py --update docs/configs.md'
    assert outdated.read_text() == f'{before}{START}\n{table}{END}{after}', message


def test_config_of_mmbixt(flops):
    found = parts(flops('linear_bixt_ti_ade20k', '--shape', '224', '224'))
    assert found['backbone'] == (14.52, 1.69)
    # one linear layer on 196 tokens
    assert found['model'][1] == pytest.approx(1.69 + 196 * 192 * 150 / 1e9, abs=0.011)
