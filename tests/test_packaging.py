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
FRAMEWORKS = {'mmengine', 'mmcv', 'mmsegmentation', 'mmdet'}


def files(folder, *patterns):
    found = {path for pattern in patterns for path in folder.rglob(pattern) if path.is_file()}
    return {
        path.relative_to(folder).as_posix() for path in found if '__pycache__' not in path.parts
    }


def run(code, site, cwd):
    """Output of ``code`` in a Python that finds mmbixt in ``site`` before any other."""
    done = subprocess.run(
        [sys.executable, '-P', '-W', 'ignore', '-c', code],
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
        subprocess.run(
            [sys.executable, 'setup.py', '-q', 'sdist', '--dist-dir', tmp_path],
            cwd=tree,
            check=True,
        )
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

    def test_imports_outside_the_repository(self, installed, tmp_path):
        lines = run('import mmbixt; print(mmbixt.__file__)', installed, tmp_path)
        assert lines == [str(installed / 'mmbixt/__init__.py')]

    def test_types_and_configs_resolve_in_a_foreign_project(self, installed, tmp_path):
        code = """
import inspect
from mmseg.registry import MODELS
print(inspect.getfile(MODELS.get('mmbixt.BiXT')))
from mmengine.config import Config
base = "_base_ = 'mmbixt::bixt/semfpn_bixt_ti_ade20k.py'"
print(Config.fromstring(base, '.py').model.backbone.type)
"""
        found, inherited = run(code, installed, tmp_path)
        assert found == str(installed / 'mmbixt/backbones/bixt.py')
        assert inherited == 'mmbixt.BiXT'

    @pytest.mark.parametrize(
        ('tool', 'option'),
        [
            ('train.py', '--sample'),
            ('analysis/benchmark.py', '--against'),
        ],  # with modules beside it
    )
    def test_carries_tools_that_run(self, installed, tmp_path, tool, option):
        done = subprocess.run(
            [sys.executable, installed / 'mmbixt/.mim/tools' / tool, '--help'],
            env={**os.environ, 'PYTHONPATH': str(installed)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert option in done.stdout, done.stderr

    def test_mim_and_mmengine_find_the_configs(self, installed, tmp_path):
        code = (
            'import mmbixt, mim.utils, mmengine.utils\n'
            'print(mim.utils.get_installed_path("mmbixt"))\n'
            'print(mmengine.utils.get_installed_path("mmbixt"))'
        )
        folders = run(code, installed, tmp_path)
        assert folders == [str(installed / 'mmbixt')] * 2
        assert files(installed / 'mmbixt/.mim/configs', '*') == files(ROOT / 'configs', '*')


def pins():
    text = (ROOT / 'requirements/environment.txt').read_text()
    return [line.split('==') for line in text.splitlines() if line and not line.startswith('#')]


made_by_setup = pytest.mark.skipif(
    not Path(sys.prefix, 'setup.stamp').exists(), reason='not in the environment of `make setup`'
)


class TestEnvironment:
    @made_by_setup
    @pytest.mark.parametrize(('name', 'pinned'), pins(), ids=[name for name, _ in pins()])
    def test_has_what_is_pinned(self, name, pinned):
        assert version(name).partition('+')[0] == pinned

    @made_by_setup
    def test_mim_finds_the_checkout(self, tmp_path):
        code = 'import mim.utils; print(mim.utils.get_installed_path("mmbixt"))'
        assert run(code, '', tmp_path) == [str(ROOT / 'mmbixt')]


@pytest.fixture
def setup_env(tmp_path):
    """Runs the set-up in a fresh place, with no pip cache and no settings of this machine."""

    def call(**settings):
        unset = ('PYTHON', 'PIP_FIND_LINKS', 'PIP_EXTRA_INDEX_URL')
        return subprocess.run(
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

    return call


def fake(path, *lines):
    path.write_text('\n'.join(['#!/bin/sh', *lines, '']))
    path.chmod(0o755)
    return str(path)


class TestSetupSaysInOneLine:
    @pytest.fixture(autouse=True)
    def _one_line(self, setup_env, tmp_path):
        def says(words, **settings):
            done = setup_env(**settings)
            assert done.returncode != 0
            assert len(done.stderr.splitlines()) == 1, done.stderr
            assert done.stderr.startswith('setup: ')
            assert words in done.stderr

        self.says, self.folder = says, tmp_path

    def test_that_a_python_does_not_run(self):
        self.says('PYTHON=/nowhere/python does not run', PYTHON='/nowhere/python')

    def test_which_unsupported_python_it_was_given(self):
        old = fake(self.folder / 'python3.9', 'echo 3.9.18 /usr')
        self.says(f'{old} is 3.9.18', PYTHON=old)

    def test_that_no_supported_python_was_found(self):
        for name in ('python3.11', 'python3.12', 'python3'):
            fake(self.folder / name, 'echo 3.8.10 /usr')
        path = f'{self.folder}{os.pathsep}{os.environ["PATH"]}'
        self.says('no Python 3.11 or 3.12 found (python3 is 3.8.10)', PATH=path)

    def test_that_venv_is_missing(self):
        python = fake(
            self.folder / 'python',
            'case "$*" in *ensurepip*) exit 1;; esac',
            f'exec "{sys.executable}" "$@"',
        )
        self.says('has no venv module', PYTHON=python)

    def test_that_the_disk_is_full(self):
        fake(self.folder / 'df', 'echo Filesystem', 'echo / 9 9 3145728 9% /')
        path = f'{self.folder}{os.pathsep}{os.environ["PATH"]}'
        self.says('3 GB free', PATH=path, PYTHON=sys.executable)

    def test_that_a_folder_is_not_its_own(self):
        (self.folder / 'venv').mkdir()
        (self.folder / 'venv/thesis.tex').touch()
        self.says('was not made by this script')
        assert (self.folder / 'venv/thesis.tex').exists()

    def test_that_the_compiler_is_missing(self):
        self.says('no C++ compiler', PYTHON=sys.executable, CXX='no-such-compiler')

    def test_that_the_package_index_is_out_of_reach(self):
        self.says('cannot reach its package index', PYTHON=sys.executable, CXX='true')
