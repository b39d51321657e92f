"""The commands in README.md, docs/ and READMEs of configs: tools, arguments and files exist.

Bash runs each block with functions in place of the programs, which print their arguments.
"""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT, blocks
from helpers import CONFIGS

from mmbixt.checkpoints.sources import SCHEMES, find

PROGRAMS = (
    'python',
    'make',
    'mim',
    'pip',
    'source',
    '.ci/run',
    *map(str, (ROOT / 'tools').glob('*.sh')),
)
PRINT = 'function {0} {{ printf "%s\\0" {0} "$@" $\'\\n\'; }}\n'
BLOCKS = {block.place: block.code for block in blocks('bash')}
TARGETS = re.findall(r'^([a-z-]+):', (ROOT / 'Makefile').read_text(), re.MULTILINE)
NAMES = {path.stem for path in CONFIGS.glob('[!_]*/*.py')}
NAMES |= {str(block.kind).removesuffix('.py') for block in blocks('python')}  # those of the page


def commands(code):
    """The commands of a block, each a list of words, as bash expands them."""
    programs = [name.removeprefix(f'{ROOT}/') for name in PROGRAMS]
    script = 'set -eu\n' + ''.join(PRINT.format(name) for name in programs) + code
    done = subprocess.run(['bash', '-c', script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.split('\0') for line in done.stdout.removesuffix('\0\n\0').split('\0\n\0')]
    # [--option] is optional, ... stands for more
    return [[word.strip('[]') for word in line if word.strip('[].')] for line in lines]


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_checkpoint(tmp_path, monkeypatch):
    (tmp_path / 'CHECKPOINT').touch()
    (tmp_path / 'configs').symlink_to(CONFIGS)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize('place', BLOCKS)
def test_commands(place, monkeypatch):
    found = commands(BLOCKS[place])
    assert found
    for program, *words in found:
        if program == 'make':
            assert set(words) <= {*TARGETS, *(w for w in words if '=' in w)}
        elif program == 'pip':
            check_pip(words)
        elif program == 'mim':
            check_mim(words)
        elif program.endswith('.sh'):
            check_script(program, words, monkeypatch)
        elif words[:2] == ['-m', 'pytest']:
            assert all((ROOT / word).exists() for word in words[2:] if word[0] != '-')
        elif program == 'python':
            check_tool(words, monkeypatch)


def check_pip(words):
    extra = re.search(r'\[(.+)\]', words[-1])
    assert words[0] == 'install'
    assert not extra or f"'{extra[1]}': [" in (ROOT / 'setup.py').read_text()


def check_mim(words):
    verb, package, *words = words
    if verb == 'run':
        assert [*ROOT.glob(f'tools/**/{words.pop(0)}.py')]
    for name in words if package == 'mmbixt' else ():
        if re.search(r'_(ade20k|coco|in1k)', name):
            assert name.removesuffix('.py') in NAMES


def check_script(program, words, monkeypatch):
    """Partition and job, or the number of GPUs, are the script's own."""
    assert os.access(ROOT / program, os.X_OK)
    tool = 'tools/train.py' if 'train' in program else 'tools/test.py'
    words = words[2:] if 'slurm' in program else words
    count = 1 if 'train' in tool else 2
    gpus = [] if 'slurm' in program else [count]
    check_tool([tool, *(w for i, w in enumerate(words) if i not in gpus)], monkeypatch)


def check_tool(words, monkeypatch):
    """The tool's own parser takes the arguments, and the files of ours that they name exist."""
    if words[0] == '-m':
        module = importlib.import_module(words[1])
        if hasattr(module, '__path__'):
            module = importlib.import_module(f'{words[1]}.__main__')
        words = words[1:]
    else:
        assert (ROOT / words[0]).is_file()
        module = importlib.import_module(Path(words[0]).stem)
        assert Path(module.__file__) == ROOT / words[0]
    monkeypatch.setattr(sys, 'argv', words)
    args = vars(module.parse_args())
    for name in (str(word) for value in args.values() for word in listed(value)):
        assert not name.startswith('configs/') or Path(name).is_file(), name
        if name.startswith(SCHEMES) and '*' not in name:
            find(name)
    config = args.get('config')
    assert not config or config.isupper() or '/' in config or config.removesuffix('.py') in NAMES


def listed(value):
    return value if isinstance(value, list | tuple) else [value]
