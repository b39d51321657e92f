"""Tools as a user calls them: in a process of their own, or in this one, which spares imports."""

import os
import runpy
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from unittest import mock

import pytest
from running import fresh_mmengine

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


@pytest.fixture(scope='session')
def within():
    """``within('analysis/compare.py', *arguments, cwd=folder)`` in this process."""

    def within(tool, *arguments, cwd='.'):
        path, code, out, err = str(TOOLS / tool), None, StringIO(), StringIO()
        argv = mock.patch.object(sys, 'argv', [path, *map(str, arguments)])
        with argv, mock.patch.dict(os.environ), chdir(cwd), fresh_mmengine():
            try:
                with redirect_stdout(out), redirect_stderr(err):
                    runpy.run_path(path, run_name='__main__')
            except SystemExit as end:
                code = end.code
        if isinstance(code, str):  # as Python does at its end
            return Done(1, out.getvalue(), f'{err.getvalue()}{code}\n')
        return Done(code or 0, out.getvalue(), err.getvalue())

    return within
