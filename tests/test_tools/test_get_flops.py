import re
from pathlib import Path

import pytest

from mmbixt.checkpoints.sources import PUBLISHED

ROOT = Path(__file__).parents[2]
TOOL = 'analysis/get_flops.py'
START, END = '<!-- table: get_flops.py --update -->', '<!-- end of table -->'


@pytest.mark.zoo
def test_table_of_models_is_that_of_the_tool(tmp_path, within):
    before, table, after = re.split(f'{START}\n|{END}', (ROOT / 'docs/configs.md').read_text())
    _, _, *rows = table.splitlines()
    names = [row.split('`')[1] for row in rows]
    assert names == [model.name for model in PUBLISHED if model.gmacs]
    outdated = tmp_path / 'configs.md'
    outdated.write_text(f'{before}{START}\nold\n{END}{after}')
    within(TOOL, '--update', outdated)
    message = 'python tools/analysis/get_flops.py --update docs/configs.md'
    assert outdated.read_text() == f'{before}{START}\n{table}{END}{after}', message


def test_config_of_mmbixt(within):
    """Millions of parameters and billions of multiply-adds, also of one linear layer on tokens."""
    said = within(TOOL, 'linear_bixt_ti_ade20k', '--shape', '224', '224').stdout
    row = r'^(\w+) +([\d.]+) M parameters +([\d.]+) G multiply-adds +[\d.]+ M activations$'
    found = {name: values for name, *values in re.findall(row, said, re.MULTILINE)}
    assert found['backbone'] == ['14.52', '1.69']
    linear = 196 * 192 * 150 / 1e9
    assert float(found['model'][1]) == pytest.approx(1.69 + linear, abs=0.011)


def test_activations_are_the_memory_that_the_paper_prints(within, tmp_path):
    """Table 5: 5.53 with 32 latents, and heads 64 wide."""
    arch = 'dict(_delete_=True, embed_dims=192, num_heads=3, depth=12)'
    config = (
        f"_base_ = 'mmbixt::bixt/bixt_ti_l32_p16_in1k.py'\nmodel = dict(backbone=dict(arch={arch}))"
    )
    (tmp_path / 'heads.py').write_text(config)
    said = within(TOOL, tmp_path / 'heads.py', '--shape', '224', '224').stdout
    assert said.endswith(' 5.53 M activations\n')
