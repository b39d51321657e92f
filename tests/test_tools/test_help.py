import pytest
from helpers import CONFIGS

TOOLS = CONFIGS.parent / 'tools'
NAMES = [str(p.relative_to(TOOLS)) for p in sorted(TOOLS.rglob('*.py')) if p.parent.name != 'dev']


@pytest.mark.parametrize('tool', NAMES)
def test_help(tool, within):
    assert within(tool, '--help').stdout.startswith('usage: ')
