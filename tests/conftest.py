import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import pip

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)
    np.random.seed(0)


@pytest.fixture
def fresh_compiler():
    """The compiler counts how often it has compiled a function, and gives up."""
    torch._dynamo.reset()


@pytest.fixture(scope='session')
def tree(tmp_path_factory):
    """A copy of what a build reads, so that nothing is left behind in the repository."""
    tree = tmp_path_factory.mktemp('build') / 'tree'
    tree.mkdir()
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, tree)
    for folder in ('mmbixt', 'configs', 'tools'):
        shutil.copytree(ROOT / folder, tree / folder, symlinks=True)
    # what a used checkout has lying about
    (tree / 'tools/__pycache__').mkdir(exist_ok=True)
    (tree / 'tools/__pycache__/train.cpython-311.pyc').touch()
    return tree


@pytest.fixture(scope='session')
def wheel(tree, tmp_path_factory):
    folder = tmp_path_factory.mktemp('wheel')
    pip('wheel', tree, '--no-build-isolation', '--wheel-dir', folder)
    return next(folder.glob('mmbixt-*.whl'))


@pytest.fixture(scope='session')
def installed(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp('site')
    pip('install', wheel, '--target', folder)
    return folder
