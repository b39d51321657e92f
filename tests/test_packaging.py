"""What a wheel carries."""

import re
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

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
