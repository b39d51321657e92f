"""Tools as a user calls them: in a process of their own, or in this one, which spares imports."""

import os
import runpy
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from mmengine.logging import MMLogger

TOOLS = Path(__file__).parents[2] / 'tools'


@dataclass
class Done:
    """What a tool printed, and with which code it ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture(scope='session')
def call():
    """``call('analysis/compare.py', *arguments, cwd=folder)`` in a process of its own."""

    def call(tool, *arguments, cwd=TOOLS.parent):
        return subprocess.run(
            [sys.executable, TOOLS / tool, *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, 'OMP_NUM_THREADS': '1'},
            capture_output=True,
            text=True,
            check=False,
        )

    return call


@pytest.fixture
def within(monkeypatch, capsys):
    """``within('analysis/compare.py', *arguments)`` in this process."""

    def within(tool, *arguments):
        path, code = str(TOOLS / tool), None
        monkeypatch.setattr(sys, 'argv', [path, *map(str, arguments)])
        capsys.readouterr()
        try:
            # a logger writes to the output that was there when it was made
            fresh = mock.patch.dict(MMLogger._instance_dict, clear=True)
            with mock.patch.dict(os.environ), fresh:
                runpy.run_path(path, run_name='__main__')
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        if isinstance(code, str):  # as Python does at its end
            return Done(1, printed.out, f'{printed.err}{code}\n')
        return Done(code or 0, printed.out, printed.err)

    return within
