"""What a wheel carries."""

import re
from email.parser import HeaderParser
from importlib.metadata import requires
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch

ROOT = Path(__file__).parents[1]
# Frameworks that exist as two distributions each (see requirements.txt).
FRAMEWORKS = {'mmengine', 'mmcv', 'mmsegmentation', 'mmdet', 'mmpretrain'}


def files(folder, *patterns):
    found = {path for pattern in patterns for path in folder.rglob(pattern) if path.is_file()}
    return {
        path.relative_to(folder).as_posix() for path in found if '__pycache__' not in path.parts
    }


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


@pytest.mark.skipif(torch.version.cuda is None, reason='this torch has no CUDA')
def test_the_compiler_of_cuda_operators_is_of_the_cuda_version_of_torch():
    needs = {re.split(r'\.\*|;', need)[0] for need in requires('cuda-toolkit')}
    assert {f'{name}=={version}' for name, version in pinned('cuda').items()} <= needs
