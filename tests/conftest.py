import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from helpers import python

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)
    np.random.seed(0)


@pytest.fixture
def fresh_compiler():
    """Without earlier compilations, whose number the compiler limits."""
    torch._dynamo.reset()


@pytest.fixture(scope='session')
def shared(tmp_path_factory):
    """A folder shared by all workers of pytest-xdist."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if 'PYTEST_XDIST_WORKER' in os.environ else folder


@pytest.fixture(scope='session')
def wheel(shared):
    """Built from a source distribution, in a copy, so that it writes nothing here."""
    tree = shared / 'tree'
    with FileLock(shared / 'wheel.lock'):
        if not tree.exists():
            tree.mkdir()
            for path in ROOT.iterdir():
                if path.is_file():
                    shutil.copy(path, tree)
            for folder in ('mmbixt', 'configs', 'tools'):
                shutil.copytree(ROOT / folder, tree / folder, symlinks=True)
            # a file that running the tools leaves in a checkout
            (tree / 'tools/__pycache__').mkdir(exist_ok=True)
            (tree / 'tools/__pycache__/train.cpython-311.pyc').touch()
            python('setup.py', '-q', 'sdist', '--dist-dir', shared / 'sdist', cwd=tree)
            (sdist,) = (shared / 'sdist').iterdir()
            offline = '--no-deps', '--no-index', '--no-build-isolation', '-q'
            python('-m', 'pip', 'wheel', *offline, '--wheel-dir', shared / 'wheel', sdist)
    return next((shared / 'wheel').glob('mmbixt-*.whl'))
