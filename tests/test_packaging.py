"""What a wheel carries, what the pin file says, what the set-up says when it cannot go on."""

import os
import re
import subprocess
import sys
from email.parser import HeaderParser
from pathlib import Path
from runpy import run_path
from tempfile import mkdtemp
from zipfile import ZipFile

import pytest
import yaml
from helpers import pip, python

ROOT = Path(__file__).parents[1]
# Frameworks that exist as two distributions each (see requirements.txt).
FRAMEWORKS = {'mmengine', 'mmcv', 'mmsegmentation', 'mmdet', 'mmpretrain'}


def files(folder, *patterns):
    found = {path for pattern in patterns for path in folder.rglob(pattern) if path.is_file()}
    return {
        path.relative_to(folder).as_posix() for path in found if '__pycache__' not in path.parts
    }


def test_versions_and_claimed_pythons_agree():
    version = run_path(str(ROOT / 'mmbixt/version.py'))['__version__']
    assert yaml.safe_load((ROOT / 'CITATION.cff').read_text())['version'] == version
    assert f'{version} will be the first' in (ROOT / 'CHANGELOG.md').read_text()
    job = yaml.safe_load((ROOT / '.github/workflows/ci.yml').read_text())['jobs']['test']
    assert job['steps'][-1] == {'run': '.ci/run'}
    claimed = {row['python'] for row in job['strategy']['matrix']['include'] if row['claimed']}
    classifiers = re.findall(r':: (3\.\d+)', (ROOT / 'setup.py').read_text())
    assert set(classifiers) == claimed


class TestWheel:
    def test_carries_the_package_the_configs_and_the_tools(self, wheel):
        carried = {name for name in ZipFile(wheel).namelist() if name.startswith('mmbixt/')}
        patterns = '*.py', 'py.typed', '*.html', '*.css', '*.js'
        expected = {f'mmbixt/{name}' for name in files(ROOT / 'mmbixt', *patterns)}
        for folder in ('configs', 'tools'):
            expected |= {f'mmbixt/.mim/{folder}/{name}' for name in files(ROOT / folder, '*')}
        assert carried >= expected | {'mmbixt/.mim/model-index.yml'}
        assert not [name for name in carried if '__pycache__' in name]

    def test_is_the_same_from_a_source_distribution(self, wheel, tree, tmp_path):
        python('setup.py', '-q', 'sdist', '--dist-dir', tmp_path, cwd=tree)
        pip('wheel', *tmp_path.glob('*.tar.gz'), '--no-build-isolation', '--wheel-dir', tmp_path)
        again = next(tmp_path.glob('*.whl'))
        assert set(ZipFile(again).namelist()) == set(ZipFile(wheel).namelist())

    def test_metadata_require_no_framework_that_exists_as_two_distributions(self, wheel):
        with ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith('/METADATA'))
            metadata = HeaderParser().parsestr(archive.read(name).decode())
        assert metadata['Description-Content-Type'] == 'text/markdown'
        assert metadata.get_all('License-File') == ['LICENSE', 'NOTICE']
        always = [need for need in metadata.get_all('Requires-Dist') if 'extra ==' not in need]
        names = {re.match(r'[\w.-]+', need)[0] for need in always}
        assert names >= {'torch', 'timm'}
        assert not names & FRAMEWORKS


def pinned(name):
    """The versions in a file of requirements/."""
    text = (ROOT / f'requirements/{name}.txt').read_text()
    return dict(re.findall(r'^([\w.-]+)==([\w.]+)', text, re.MULTILINE))


@pytest.mark.parametrize('name', ['environment', 'openmmlab', 'onedl', 'peft'])
def test_locked_versions_are_those_pinned(name):
    """Otherwise: make lock."""
    pins, locked = pinned(name), pinned(f'locked/{name}')
    names = {re.sub('[._]', '-', pin).lower(): pin for pin in pins if not pin.startswith('torch')}
    assert locked == {name: pins[pin] for name, pin in names.items()}
    text = (ROOT / f'requirements/locked/{name}.txt').read_text()
    assert text.count('==') == len(re.findall(r'==\S+ \\\n    --hash=sha256:[0-9a-f]{64}', text))
    assert '://' not in text


@pytest.fixture
def says(tmp_path):
    """Runs the set-up in a fresh place, with no pip cache and no settings of this machine."""

    def says(words, *arguments, **settings):
        unset = ('PYTHON', 'PIP_FIND_LINKS', 'PIP_EXTRA_INDEX_URL')
        done = subprocess.run(
            [ROOT / 'tools/dev/setup_env.sh', *arguments],
            env={
                **{key: value for key, value in os.environ.items() if key not in unset},
                'VENV': mkdtemp(dir=tmp_path),
                'PIP_CONFIG_FILE': os.devnull,
                'PIP_NO_CACHE_DIR': '1',
                'PIP_INDEX_URL': 'http://127.0.0.1:9/',  # nobody answers there
                **settings,
            },
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode != 0
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert done.stderr.startswith('setup: ')
        assert words in done.stderr

    return says


def fake(path, code):
    """Write a program; returns the variable PATH with its folder before all others."""
    path.write_text(f'#!/bin/sh\n{code}\n')
    path.chmod(0o755)
    return f'{path.parent}{os.pathsep}{os.environ["PATH"]}'


def test_setup_says_what_is_missing(says, tmp_path):
    says('PYTHON=/nowhere/python does not run', PYTHON='/nowhere/python')
    venv = tmp_path / 'venv'  # to make one takes seconds, so this one is taken for whole
    says('no C++ compiler', PYTHON=sys.executable, CXX='no-such-compiler', VENV=str(venv))
    (venv / 'setup.unfinished').unlink()
    says('cannot reach its package index', PYTHON=sys.executable, CXX='true', VENV=str(venv))
    assert not (venv / 'setup.unfinished').exists()  # pip was not killed: the rest is whole
    path = fake(tmp_path / 'df', 'echo Filesystem; echo / 9 9 3145728 9% /')
    says('3 GB free', PATH=path, PYTHON=sys.executable)


def test_setup_keeps_the_fork_and_the_folders_of_others_apart(says, tmp_path):
    venv = tmp_path / 'venv'
    says('PYTHON=/nowhere/python does not run', 'onedl', PYTHON='/nowhere/python', VENV=f'{venv}/')
    assert (tmp_path / 'venv-onedl/setup.lock').exists()
    assert not venv.exists()
    (tmp_path / 'thesis.tex').touch()
    says('was not made by this script', VENV=str(tmp_path))
    assert (tmp_path / 'thesis.tex').exists()
