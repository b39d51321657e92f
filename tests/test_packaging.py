"""What a wheel carries, what is claimed and pinned."""

import re
from email.parser import HeaderParser
from importlib.metadata import requires
from pathlib import Path
from runpy import run_path
from zipfile import ZipFile

import pytest
import torch
import yaml

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
    assert f'## [{version}]' in (ROOT / 'CHANGELOG.md').read_text()
    job = yaml.safe_load((ROOT / '.github/workflows/ci.yml').read_text())['jobs']['test']
    claimed = {row['python'] for row in job['strategy']['matrix']['include']}
    setup = (ROOT / 'setup.py').read_text()
    assert set(re.findall(r':: (3\.\d+)', setup)) == claimed
    (lowest,) = re.findall(r"python_requires='>=3\.(\d+)'", setup)
    assert f"target-version = 'py3{lowest}'" in (ROOT / 'pyproject.toml').read_text()
    assert f'3.{lowest}' == min(claimed)


class TestWheel:
    def test_carries_the_package_the_configs_and_the_tools(self, wheel):
        carried = {name for name in ZipFile(wheel).namelist() if name.startswith('mmbixt/')}
        patterns = '*.py', 'py.typed', '*.html', '*.css', '*.js'
        expected = {f'mmbixt/{name}' for name in files(ROOT / 'mmbixt', *patterns)}
        for folder in ('configs', 'tools'):
            expected |= {f'mmbixt/.mim/{folder}/{name}' for name in files(ROOT / folder, '*')}
        assert carried >= expected | {'mmbixt/.mim/model-index.yml'}
        assert not [name for name in carried if '__pycache__' in name or 'projects' in name]

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


@pytest.mark.parametrize('name', ['environment', 'openmmlab', 'onedl', 'peft', 'cuda'])
def test_locked_versions_are_those_pinned(name):
    """Otherwise: make lock."""
    pins, locked = pinned(name), pinned(f'locked/{name}')
    hashed = pins.keys() - {'torch', 'torchvision'}
    names = {re.sub('[._]', '-', pin).lower(): pin for pin in hashed}
    assert locked == {name: pins[pin] for name, pin in names.items()}
    text = (ROOT / f'requirements/locked/{name}.txt').read_text()
    assert text.count('==') == len(re.findall(r'==\S+ \\\n    --hash=sha256:[0-9a-f]{64}', text))
    assert '://' not in text


@pytest.mark.skipif(torch.version.cuda is None, reason='this torch has no CUDA')
def test_the_compiler_of_cuda_operators_is_of_the_cuda_version_of_torch():
    needs = {re.split(r'\.\*|;', need)[0] for need in requires('cuda-toolkit')}
    assert {f'{name}=={version}' for name, version in pinned('cuda').items()} <= needs
