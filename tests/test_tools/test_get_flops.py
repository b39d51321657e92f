from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def flops(within):
    return lambda *arguments: within('analysis/get_flops.py', *arguments)


def test_table_in_the_readme_is_what_the_tool_makes(tmp_path, call):
    readme = (ROOT / 'README.md').read_text()
    start, end = (readme.index(f'<!-- {mark}') for mark in ('table: ', 'end of table'))
    outdated = tmp_path / 'README.md'
    outdated.write_text(
        f'{readme[:start]}<!-- table: get_flops.py --table -->\nold\n{readme[end:]}'
    )
    done = call('analysis/get_flops.py', '--table', '--update', outdated)
    assert done.returncode == 0, done.stderr
    message = 'python tools/analysis/get_flops.py --table --update README.md'
    assert outdated.read_text() == readme, message
    assert readme.count('| `xcit_small_12_p16` |') == 1


def test_config(flops):
    done = flops(ROOT / 'configs/bixt/linear_bixt_ti_ade20k.py', '--shape', '224', '224')
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines()[1:]}
    assert rows['backbone'][1] == '14.52'
    assert rows['backbone'][4] == '1.68'  # as in the table
    # one linear layer on 196 tokens
    total = float(rows['backbone'][4]) + 196 * 192 * 150 / 1e9
    assert float(rows['model'][4]) == pytest.approx(total, abs=0.011)


def test_installed_config_of_a_model_that_needs_values(flops):
    base = 'mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py'
    done = flops(base, '--shape', '64', '64')
    assert done.stdout.splitlines()[1].startswith('backbone       27.52 M parameters')


@pytest.mark.parametrize(
    ('base', 'parts'),
    [
        ('retinanet/retinanet_r50_fpn_1x_coco', ['backbone', 'neck', 'model']),
        ('mask_rcnn/mask-rcnn_r50_fpn_1x_coco', ['backbone', 'neck', '(What']),
    ],
)
def test_detector(tmp_path, base, parts, flops):
    path = tmp_path / 'detector.py'
    path.write_text(f"_base_ = 'mmdet::{base}.py'\n")
    done = flops(path, '--shape', '128', '160')
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == parts


def test_either_a_config_or_the_table(flops):
    done = flops()
    assert done.returncode == 2
    assert 'either a config or --table' in done.stderr


def test_configs_of_ours_by_name(flops):
    done = flops('linear_bixt_ti_ade20k', '--shape', '32', '32')
    assert done.stdout.startswith('linear_bixt_ti_ade20k at 32 x 32'), done.stderr
    done = flops('linear_bixt_tiny_ade20k.py')
    assert done.returncode == 1
    assert done.stderr.startswith('FileNotFoundError: There is no file linear_bixt_tiny_ade20k.py')
    assert 'no config of ours of this name. Similar names: linear_bixt_ti_ade20k' in done.stderr
    assert len(done.stderr.splitlines()) == 1
