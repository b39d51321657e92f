"""The commands in README.md, docs/ and READMEs of configs: tools, arguments and files exist.

Bash runs each block with functions in place of the programs, which print their arguments.
"""

import os
import re
import runpy
import subprocess
import sys

import pytest
from documents import ROOT, blocks

from mmbixt.checkpoints.sources import SCHEMES, find
from mmbixt.config import config_files

SCRIPTS = [str(x.relative_to(ROOT)) for x in (*ROOT.glob('*/*.sh'), *ROOT.glob('projects/*/*.sh'))]
PROGRAMS = 'git', 'python', 'make', 'mim', 'pip', 'source', '.ci/run', *SCRIPTS
PRINT = 'function {0} {{ printf "%s\\0" {0} "$@" $\'\\n\'; }}\n'
BLOCKS = {block.place: block.code for block in blocks('bash')}
TARGETS = re.findall(r'^([a-z-]+):', (ROOT / 'Makefile').read_text(), re.MULTILINE)
NAMES = {*config_files()}
NAMES |= {str(block.kind).removesuffix('.py') for block in blocks('python')}  # those of the page
NAMES |= {*re.findall(r'--out (\S+)\.py', '\n'.join(BLOCKS.values()))}  # of new_config.py


def commands(code):
    """The commands of a block, each a list of words, as bash expands them."""
    script = 'set -eu\n' + ''.join(map(PRINT.format, PROGRAMS)) + code
    done = subprocess.run(['bash', '-c', script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.split('\0') for line in done.stdout.removesuffix('\0\n\0').split('\0\n\0')]
    # [--option] is optional, ... stands for more
    return [[word.strip('[]') for word in line if word.strip('[].')] for line in lines]


@pytest.mark.parametrize('place', BLOCKS)
def test_commands(place, monkeypatch):
    found = commands(BLOCKS[place])
    assert found
    for program, *words in found:
        if program == 'make':
            assert set(words) <= {*TARGETS, *(w for w in words if '=' in w)}
            if 'demo' in words:
                runpy.run_path(str(ROOT / 'tools/demo.py'))  # its imports exist
        elif program.endswith('.sh'):
            assert os.access(ROOT / program, os.X_OK)
        elif program == 'python' and words[0] != '-m':
            check_tool(words, monkeypatch)


def check_tool(words, monkeypatch):
    """The tool's own parser takes the arguments, and the files of ours that they name exist."""
    tool = runpy.run_path(str(ROOT / words[0]))
    monkeypatch.setattr(sys, 'argv', words)
    args = vars(tool['parse_args']())
    for name in words:
        assert not name.startswith(('configs/', 'projects/')) or (ROOT / name).is_file(), name
        if name.startswith(SCHEMES) and '*' not in name:
            find(name)
    config = args.get('config')
    assert not config or config.isupper() or '/' in config or config.removesuffix('.py') in NAMES
