import sys

import pytest
import torch
from helpers import CONFIGS, image
from variants import FAMILIES, VARIANTS, build

from mmbixt.ops.dispatch import recorded_choices
from mmbixt.ops.explain import choices_of, main


@pytest.mark.parametrize('config', VARIANTS.values(), ids=VARIANTS)
def test_choices_on_fake_tensors_are_those_of_a_real_step(config):
    network = build(config).train()
    with recorded_choices() as choices:
        network(image(1, 64, 48))
    assert choices_of(config, (64, 48)) == choices


@pytest.mark.parametrize('config', FAMILIES.values(), ids=FAMILIES)
@pytest.mark.parametrize('amp', [None, torch.bfloat16])
def test_on_a_missing_gpu_no_op_takes_operators_for_processors(config, amp):
    choices = choices_of(config, (64, 48), 'cuda', amp)
    assert {choice.path for choice in choices} <= {'portable', 'reference'}
    assert any('on cuda' in choice.why for choice in choices)


@pytest.fixture
def explain(monkeypatch):
    """The command, in this process."""

    def run(*arguments):
        monkeypatch.setattr(sys, 'argv', ['explain', *map(str, arguments)])
        main()

    return run


def test_command(explain, capsys):
    config = CONFIGS / 'xcit/semfpn_xcit_t12_p16_ade20k.py'
    explain(config, '--size', '256x320', '--device', 'cuda', '--amp', 'bfloat16')
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith('mmbixt.XCiT, one image of 256 x 320 pixels on cuda, training, autocast')
    (row,) = (row for row in rows if row.startswith('cross_covariance_attention'))
    assert row.split()[1:4] == ['reference', '12', '1x320x192']


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['no_such_config'], 'There is no file no_such_config'),
        (['semfpn_bixt_ti_ade20k', '--size', '8'], 'a patch has 16 x 16'),
        (['semfpn_bixt_ti_ade20k', '--size', '0x5'], "'0x5' is not a size"),
        (['mmseg::fcn/fcn_r50-d8_4xb4-80k_ade20k-512x512.py'], 'backbone is not one of mmbixt'),
    ],
)
def test_errors_are_printed_in_one_line(explain, capsys, arguments, message):
    with pytest.raises(SystemExit, match='2'):
        explain(*arguments)
    assert message in capsys.readouterr().err.splitlines()[-1]
