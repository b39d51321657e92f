"""What a wheel carries, what the pin file says, what the set-up says when it cannot go on."""

import os
import re
import subprocess
import sys
from email.parser import HeaderParser
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

import pytest
from helpers import pip

ROOT = Path(__file__).parents[1]
# Frameworks that exist as two distributions each (see requirements.txt).
FRAMEWORKS = {'mmengine', 'mmcv', 'mmsegmentation', 'mmdet', 'mmpretrain'}


def files(folder, *patterns):
    found = {path for pattern in patterns for path in folder.rglob(pattern) if path.is_file()}
    return {
        path.relative_to(folder).as_posix() for path in found if '__pycache__' not in path.parts
    }


def run(arguments, site, cwd):
    """Output of a Python that finds mmbixt in ``site`` before any other."""
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', *map(str, arguments)],
        env={**os.environ, 'PYTHONPATH': str(site)},
        cwd=cwd,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


class TestWheel:
    def test_carries_the_package_the_configs_and_the_tools(self, wheel):
        carried = {name for name in ZipFile(wheel).namelist() if name.startswith('mmbixt/')}
        expected = {
            f'mmbixt/{name}'
            for name in files(ROOT / 'mmbixt', '*.py', 'py.typed', '*.html', '*.css', '*.js')
        }
        for folder in ('configs', 'tools'):
            expected |= {f'mmbixt/.mim/{folder}/{name}' for name in files(ROOT / folder, '*')}
        if (ROOT / 'model-index.yml').exists():
            expected.add('mmbixt/.mim/model-index.yml')
        assert carried >= expected
        assert not [name for name in carried if '__pycache__' in name]

    def test_is_the_same_from_a_source_distribution(self, wheel, tree, tmp_path):
        command = [sys.executable, 'setup.py', '-q', 'sdist', '--dist-dir', tmp_path]
        subprocess.run(command, cwd=tree, check=True)
        pip('wheel', *tmp_path.glob('*.tar.gz'), '--no-build-isolation', '--wheel-dir', tmp_path)
        again = next(tmp_path.glob('*.whl'))
        assert set(ZipFile(again).namelist()) == set(ZipFile(wheel).namelist())

    def test_does_not_pull_in_one_of_two_rival_distributions(self, wheel):
        with ZipFile(wheel) as archive:
            name = next(name for name in archive.namelist() if name.endswith('/METADATA'))
            metadata = HeaderParser().parsestr(archive.read(name).decode())
        always = [need for need in metadata.get_all('Requires-Dist') if 'extra ==' not in need]
        names = {re.match(r'[\w.-]+', need)[0] for need in always}
        assert names >= {'torch', 'timm'}
        assert not names & FRAMEWORKS

    def test_types_and_configs_resolve_in_a_foreign_project(self, installed, tmp_path):
        code = """
import inspect
from mmseg.registry import MODELS
print(inspect.getfile(MODELS.get('mmbixt.BiXT')))
from mmengine.config import Config
base = "_base_ = 'mmbixt::bixt/semfpn_bixt_ti_ade20k.py'"
print(Config.fromstring(base, '.py').model.backbone.type)
import mim.utils, mmengine.utils
print(mim.utils.get_installed_path("mmbixt"))
print(mmengine.utils.get_installed_path("mmbixt"))
"""
        found, inherited, *folders = run(['-P', '-c', code], installed, tmp_path)
        assert found == str(installed / 'mmbixt/backbones/bixt.py')
        assert inherited == 'mmbixt.BiXT'
        assert folders == [str(installed / 'mmbixt')] * 2
        assert files(installed / 'mmbixt/.mim/configs', '*') == files(ROOT / 'configs', '*')


def pins():
    text = (ROOT / 'requirements/environment.txt').read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith('#')]
    return dict(line.split('==') for line in lines)


made_by_setup = pytest.mark.skipif(
    not Path(sys.prefix, 'setup.stamp').exists(), reason='not in the environment of `make setup`'
)


@made_by_setup
class TestEnvironment:
    def test_has_what_is_pinned(self):
        found = {name: version(name).partition('+')[0] for name in pins()}
        assert found == pins()

    def test_mim_finds_the_checkout(self, tmp_path):
        code = 'import mim.utils; print(mim.utils.get_installed_path("mmbixt"))'
        assert run(['-P', '-c', code], '', tmp_path) == [str(ROOT / 'mmbixt')]


@pytest.fixture
def says(tmp_path):
    """Runs the set-up in a fresh place, with no pip cache and no settings of this machine."""

    def says(words, **settings):
        unset = ('PYTHON', 'PIP_FIND_LINKS', 'PIP_EXTRA_INDEX_URL')
        done = subprocess.run(
            [ROOT / 'tools/dev/setup_env.sh'],
            env={
                **{key: value for key, value in os.environ.items() if key not in unset},
                'VENV': str(tmp_path / 'venv'),
                'PIP_CONFIG_FILE': os.devnull,
                'PIP_NO_CACHE_DIR': '1',
                'PIP_INDEX_URL': 'http://127.0.0.1:9/',  # nobody answers there
                **settings,
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode != 0
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert done.stderr.startswith('setup: ')
        assert words in done.stderr

    return says


def fake(path, *lines):
    path.write_text('\n'.join(['#!/bin/sh', *lines, '']))
    path.chmod(0o755)
    return str(path)


def before(folder):
    """The variable PATH with a folder before all others."""
    return f'{folder}{os.pathsep}{os.environ["PATH"]}'


class TestSetupSaysInOneLine:
    @pytest.mark.parametrize(
        ('words', 'settings'),
        [
            ('PYTHON=/nowhere/python does not run', dict(PYTHON='/nowhere/python')),
            ('no C++ compiler', dict(PYTHON=sys.executable, CXX='no-such-compiler')),
            ('cannot reach its package index', dict(PYTHON=sys.executable, CXX='true')),
        ],
    )
    def test_what_is_missing(self, says, words, settings):
        says(words, **settings)

    def test_which_unsupported_python_it_was_given(self, says, tmp_path):
        old = fake(tmp_path / 'python3.9', 'echo 3.9.18 /usr')
        says(f'{old} is 3.9.18', PYTHON=old)

    def test_that_no_supported_python_was_found(self, says, tmp_path):
        for name in ('python3.11', 'python3.12', 'python3'):
            fake(tmp_path / name, 'echo 3.8.10 /usr')
        says('no Python 3.11 or 3.12 found (python3 is 3.8.10)', PATH=before(tmp_path))

    def test_that_venv_is_missing(self, says, tmp_path):
        no_venv = 'case "$*" in *ensurepip*) exit 1;; esac'
        python = fake(tmp_path / 'python', no_venv, f'exec "{sys.executable}" "$@"')
        says('has no venv module', PYTHON=python)

    def test_that_the_disk_is_full(self, says, tmp_path):
        fake(tmp_path / 'df', 'echo Filesystem', 'echo / 9 9 3145728 9% /')
        says('3 GB free', PATH=before(tmp_path), PYTHON=sys.executable)

    def test_that_a_folder_is_not_its_own(self, says, tmp_path):
        (tmp_path / 'venv').mkdir()
        (tmp_path / 'venv/thesis.tex').touch()
        says('was not made by this script')
        assert (tmp_path / 'venv/thesis.tex').exists()
